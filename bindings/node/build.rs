//! Lets the addon leave Node's functions unresolved, where the linker has to be told.

fn main() {
    napi_build::setup();
}
