//! The README shows code that compiles: the text of `examples/quickstart.rs`.

#[test]
fn the_readme_shows_the_quickstart_example() {
    let example = include_str!("../../examples/quickstart.rs");
    let shown = example.split_once("\n\n").expect("the example opens with a module doc").1;
    assert!(
        include_str!("../../../../README.md").contains(shown),
        "README.md and examples/quickstart.rs differ"
    );
}
