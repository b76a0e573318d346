//! A proxy that cuts and delays connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Listens on a port and forwards connections to another one.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Maximum bytes from the server before a connection is cut; 0 means no cut.
    cut_after: AtomicU64,
    /// Delay of each piece in milliseconds.
    delay_ms: AtomicU64,
    is_over: AtomicBool,
    cuts: AtomicU64,
}

impl Proxy {
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        std::thread::spawn({
            let shared = shared.clone();
            move || {
                for near in listener.incoming().map_while(Result::ok) {
                    if shared.is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                    let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                    std::thread::spawn(move || pass(near, far, |_| true));
                    let shared = shared.clone();
                    let share = fastrand::f64();
                    std::thread::spawn(move || {
                        let mut passed = 0;
                        pass(far_too, near_too, |n| {
                            std::thread::sleep(Duration::from_millis(
                                shared.delay_ms.load(Ordering::Relaxed),
                            ));
                            passed += n;
                            let limit = shared.cut_after.load(Ordering::Relaxed);
                            let goes_on = limit == 0 || passed < (share * limit as f64) as u64;
                            shared.cuts.fetch_add(u64::from(!goes_on), Ordering::Relaxed);
                            goes_on
                        });
                    });
                }
            }
        });
        Proxy { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts each new connection after at most this number of bytes; 0 means never.
    pub fn cut_after(&self, bytes: u64) {
        self.shared.cut_after.store(bytes, Ordering::Relaxed);
    }

    pub fn delay(&self, ms: u64) {
        self.shared.delay_ms.store(ms, Ordering::Relaxed);
    }

    /// Number of cuts.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Forwards bytes until one side ends or `goes_on` returns false. Only half of the last piece is sent then,
/// so that a cut may lie within a piece.
fn pass(mut from: TcpStream, mut to: TcpStream, mut goes_on: impl FnMut(u64) -> bool) {
    let mut buffer = [0; 16 << 10];
    while let Ok(n) = from.read(&mut buffer) {
        let is_last = n == 0 || !goes_on(n as u64);
        let piece = if is_last { &buffer[..n / 2] } else { &buffer[..n] };
        if to.write_all(piece).is_err() || is_last {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
