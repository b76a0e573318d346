//! Finds the code blocks of a page.

/// A block between two fences.
#[derive(Debug, PartialEq)]
pub(super) struct Block<'a> {
    /// What the fence says, up to the first comma.
    pub(super) language: &'a str,
    /// The line of the fence, from 1.
    pub(super) line: usize,
    pub(super) lines: Vec<&'a str>,
}

/// Returns all blocks, in order.
pub(super) fn all(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            if !is_open {
                let language = fence.split(',').next().unwrap_or_default();
                blocks.push(Block { language, line: number + 1, lines: Vec::new() });
            }
            is_open = !is_open;
        } else if let Some(block) = blocks.last_mut().filter(|_| is_open) {
            block.lines.push(line);
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_language_and_lines() {
        let blocks = all("a\n```rust,no_run\nx\n\ny\n```\nb\n```\nz\n```\n");
        let rust = Block { language: "rust", line: 2, lines: vec!["x", "", "y"] };
        assert_eq!(blocks, [rust, Block { language: "", line: 8, lines: vec!["z"] }]);
    }
}
