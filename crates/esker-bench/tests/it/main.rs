//! The lab's program from the outside, with its peers. The tests of Go's side of the lab need no peer and
//! pass where there is no Go.

mod async_commits;
mod end_to_end;
mod go_peers;
mod listed;
mod peers;
