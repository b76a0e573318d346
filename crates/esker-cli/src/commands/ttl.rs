//! `esker ttl`: print how long a key is still there.

use std::ffi::OsString;
use std::io::Write;

use esker::Ttl;

use crate::Answer;
use crate::database::Session;
use crate::failure::Result;
use crate::output;
use crate::text::shown;

#[derive(Debug, clap::Args)]
pub(crate) struct TtlArgs {
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: OsString,
}

pub(super) fn run(session: &Session<'_>, args: &TtlArgs) -> Result<Answer> {
    let common = &session.common;
    let key = common.decode(&args.key)?;
    let database = session.open()?;
    let mut answer = Answer::No;
    let mut out = output::stdout();
    for (name, keyspace) in database.keyspaces(common)? {
        let Some(ttl) = database.ttl(&keyspace, &key)? else { continue };
        answer = Answer::Yes;
        if common.has_several() {
            write!(out, "{}\t", shown(&name))?;
        }
        match (ttl, common.json) {
            (Ttl::Unlimited, false) => writeln!(out, "unlimited")?,
            (Ttl::Unlimited, true) => writeln!(out, "{{\"seconds\":null}}")?,
            (Ttl::Left(left), false) => writeln!(out, "{:.3}", left.as_secs_f64())?,
            (Ttl::Left(left), true) => writeln!(out, "{{\"seconds\":{:.3}}}", left.as_secs_f64())?,
        }
    }
    out.flush()?;
    Ok(answer)
}
