//! The tool from the outside.

mod backup;
mod changes;
mod commands;
mod common;
mod files;
mod inputs;
mod keyspaces;
mod past;
mod shell;
mod special_files;
mod upkeep;
