//! Tests of the lab's program, with its peers. The tests of the Go side need no peer, and pass if Go is
//! missing.

mod async_commits;
mod end_to_end;
mod go_peers;
mod listed;
mod peers;
