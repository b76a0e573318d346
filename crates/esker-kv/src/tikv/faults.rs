//! What the errors of the client mean.

use tikv_client::Error as ClientError;

use crate::Error;

/// What a call can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// The lock of another transaction is in the way.
    Locked,
    /// Another transaction has changed a key, or has rolled back this one.
    Conflict,
    /// A message or an entry is longer than the servers take or send.
    TooLarge,
    /// A server does not answer, or its regions move.
    Unavailable,
    /// The answer to the commit was lost.
    Undetermined,
    Other,
}

/// Codes of gRPC for messages that are too long, at the sender and at the receiver.
const TOO_LONG: [i32; 2] = [8, 11];

impl Fault {
    pub(super) fn of(error: &ClientError) -> Fault {
        match error {
            ClientError::TxnNotFound(_) | ClientError::ResolveLockError(_) => Fault::Locked,
            ClientError::KeyError(key) if key.locked.is_some() || key.txn_not_found.is_some() => {
                Fault::Locked
            }
            ClientError::KeyError(key) => {
                let is_conflict = key.conflict.is_some()
                    || key.deadlock.is_some()
                    || key.commit_ts_expired.is_some()
                    || !key.retryable.is_empty();
                if is_conflict { Fault::Conflict } else { Fault::Other }
            }
            ClientError::PessimisticLockError { inner, .. } => Fault::of(inner),
            ClientError::ExtractedErrors(errors) | ClientError::MultipleKeyErrors(errors) => {
                errors.iter().map(Fault::of).max().unwrap_or(Fault::Other)
            }
            ClientError::UndeterminedError(_) => Fault::Undetermined,
            ClientError::RegionError(region) if region.raft_entry_too_large.is_some() => Fault::TooLarge,
            ClientError::GrpcAPI(status) if TOO_LONG.contains(&(status.code() as i32)) => Fault::TooLarge,
            ClientError::RegionError(_)
            | ClientError::Grpc(_)
            | ClientError::GrpcAPI(_)
            | ClientError::Io(_)
            | ClientError::Channel(_)
            | ClientError::Canceled(_)
            | ClientError::NoCurrentRegions
            | ClientError::EntryNotFoundInRegionCache
            | ClientError::RegionForKeyNotFound { .. }
            | ClientError::RegionForRangeNotFound { .. }
            | ClientError::RegionNotFoundInResponse { .. }
            | ClientError::LeaderNotFound { .. }
            | ClientError::InternalError { .. }
            | ClientError::JoinError(_) => Fault::Unavailable,
            _ => Fault::Other,
        }
    }
}

/// Returns the text of an error, without the place in the client's source that some begin with.
pub(super) fn text(error: &ClientError) -> String {
    let text = error.to_string();
    let place = text.find("[/").and_then(|from| Some((from, from + text[from..].find("]: ")? + 3)));
    match place {
        Some((from, to)) => format!("{}{}", &text[..from], &text[to..]),
        None => text,
    }
}

/// Returns the error of a call that has committed nothing.
pub(super) fn error(from: ClientError) -> Error {
    match Fault::of(&from) {
        Fault::Conflict => Error::Conflict,
        Fault::Locked | Fault::Unavailable | Fault::Undetermined => Error::Unavailable(text(&from)),
        Fault::TooLarge => Error::TooLarge(text(&from)),
        Fault::Other => Error::other(from),
    }
}

/// Returns whether only the first phase of a commit returns this error: then it has not begun the second
/// (tikv.2). The second phase returns the error of one key alone, not in a list.
pub(super) fn is_of_first_phase(error: &ClientError) -> bool {
    match error {
        ClientError::MultipleKeyErrors(_)
        | ClientError::TxnNotFound(_)
        | ClientError::ResolveLockError(_) => true,
        ClientError::KeyError(key) => key.conflict.is_some() || key.locked.is_some(),
        // The second phase writes no values.
        ClientError::RegionError(region) => region.raft_entry_too_large.is_some(),
        _ => false,
    }
}

/// Returns the start timestamps of transactions whose locks are there, and whose primary keys are not.
pub(super) fn orphans(error: &ClientError) -> Vec<u64> {
    match error {
        ClientError::TxnNotFound(not_found) => vec![not_found.start_ts],
        ClientError::KeyError(key) => key.txn_not_found.iter().map(|found| found.start_ts).collect(),
        ClientError::PessimisticLockError { inner, .. } => orphans(inner),
        ClientError::ExtractedErrors(errors) | ClientError::MultipleKeyErrors(errors) => {
            errors.iter().flat_map(orphans).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use tikv_client::ProtoKeyError;

    use super::*;

    fn key(change: impl FnOnce(&mut ProtoKeyError)) -> ClientError {
        let mut key = ProtoKeyError::default();
        change(&mut key);
        ClientError::KeyError(Box::new(key))
    }

    #[test]
    fn errors_by_what_to_do() {
        let not_found = || key(|key| key.txn_not_found.get_or_insert_default().start_ts = 7);
        let conflict = || key(|key| key.conflict = Some(Default::default()));
        let cases = [
            (not_found(), Fault::Locked),
            (conflict(), Fault::Conflict),
            (key(|key| key.retryable = "TxnLockNotFound".to_owned()), Fault::Conflict),
            (key(|key| key.abort = "disk".to_owned()), Fault::Other),
            (ClientError::MultipleKeyErrors(vec![not_found(), conflict()]), Fault::Conflict),
            (ClientError::ResolveLockError(Vec::new()), Fault::Locked),
            (ClientError::UndeterminedError(Box::new(conflict())), Fault::Undetermined),
            (ClientError::RegionError(Box::default()), Fault::Unavailable),
        ];
        for (error, fault) in cases {
            assert_eq!(Fault::of(&error), fault, "{error}");
        }
        assert_eq!(orphans(&ClientError::MultipleKeyErrors(vec![not_found(), conflict()])), [7]);
        assert!(is_of_first_phase(&ClientError::MultipleKeyErrors(vec![conflict()])));
        assert!(!is_of_first_phase(&key(|key| key.retryable = "TxnLockNotFound".to_owned())));
        assert!(!is_of_first_phase(&ClientError::UndeterminedError(Box::new(conflict()))));
    }
}
