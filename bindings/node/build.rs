//! Lets the addon leave Node's functions unresolved, where the linker needs an option for it.

fn main() {
    napi_build::setup();
}
