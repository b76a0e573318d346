//! Both READMEs show code that compiles: the text of `examples/quickstart.rs`.

#[test]
fn both_readmes_show_the_quickstart_example() {
    let example = include_str!("../../examples/quickstart.rs");
    let shown = example.split_once("\n\n").expect("the example opens with a module doc").1;
    for readme in [include_str!("../../../../README.md"), include_str!("../../README.md")] {
        assert!(readme.contains(shown), "a README.md and examples/quickstart.rs differ");
    }
}
