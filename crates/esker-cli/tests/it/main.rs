//! The tool from the outside.

mod commands;
mod common;
mod files;
mod inputs;
mod keyspaces;
mod shell;
mod special_files;
mod upkeep;
