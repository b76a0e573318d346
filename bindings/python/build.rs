//! macOS links a Python module only if it may leave the interpreter's functions open.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
