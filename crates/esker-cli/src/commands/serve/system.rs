//! What a server has to do with the system: signals, descriptors, systemd.

use esker_server::Stopper;

use crate::output;

/// A state that is reported to systemd.
#[derive(Clone, Copy)]
pub(super) enum SystemState {
    Ready,
    Stopping,
}

/// Reports the state of a service with `Type=notify` to systemd.
#[cfg(target_os = "linux")]
pub(super) fn tell_system(states: &[SystemState]) {
    let state = |state: &SystemState| match state {
        SystemState::Ready => sd_notify::NotifyState::Ready,
        SystemState::Stopping => sd_notify::NotifyState::Stopping,
    };
    // If this fails, systemd ends the service by its time limit. Without systemd it does nothing.
    let _ = sd_notify::notify(&states.iter().map(state).collect::<Vec<_>>());
}

/// This system has no systemd.
#[cfg(not(target_os = "linux"))]
pub(super) fn tell_system(_: &[SystemState]) {}

/// Raises the limit of open descriptors to the maximum and returns it.
#[cfg(target_os = "linux")]
pub(super) fn raise_descriptors() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If raising fails, the server accepts fewer clients.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current
}

/// The limit of open descriptors is unknown on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn raise_descriptors() -> Option<u64> {
    None
}

/// Makes SIGTERM, SIGINT and SIGQUIT stop the server, SIGHUP read certificates again, and SIGUSR1 and SIGUSR2
/// do nothing. The handlers stay installed for the life of the process.
pub(super) fn stop_on_signals(stopper: &Stopper) {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut signals) = signal(SignalKind::hangup()) {
            let stopper = stopper.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    match tokio::task::block_in_place(|| stopper.read_certificates()) {
                        Ok(()) => output::print_message("esker: read the certificates again"),
                        Err(why) => output::print_message(format_args!("esker: SIGHUP: {why}")),
                    }
                }
            });
        }
        for kind in [SignalKind::user_defined1(), SignalKind::user_defined2()] {
            // The handler stays installed after the receiver is dropped.
            drop(signal(kind));
        }
        for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()] {
            let Ok(mut signals) = signal(kind) else { continue };
            let stopper = stopper.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    stopper.stop();
                }
            });
        }
    }
    #[cfg(not(unix))]
    {
        let stopper = stopper.clone();
        tokio::spawn(async move {
            let _ = tokio::signal::ctrl_c().await;
            stopper.stop();
        });
    }
}
