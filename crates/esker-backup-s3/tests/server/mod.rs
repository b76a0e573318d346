//! Starts moto, an S3 server, with the bucket `bucket`.

use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A process that is killed when it is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program in `ESKER_MOTO_SERVER`, or `moto_server`. Returns its address. `None`: the test is left
/// out, which it says.
pub fn moto() -> Option<(Running, String)> {
    let program = std::env::var("ESKER_MOTO_SERVER").unwrap_or_else(|_| "moto_server".to_owned());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut command = Command::new(program);
    command.args(["-H", "127.0.0.1", "-p", &port]).stdout(Stdio::null()).stderr(Stdio::null());
    let is_required = std::env::var("ESKER_REQUIRE").is_ok_and(|list| list.contains("stores"));
    let Ok(child) = command.spawn() else {
        assert!(!is_required, "moto_server is not installed");
        println!("left out: moto_server is not installed");
        return None;
    };
    let (server, endpoint) = (Running(child), format!("http://127.0.0.1:{port}"));
    let end = Instant::now() + Duration::from_secs(60);
    while !curl(&["-X", "PUT", &format!("{endpoint}/bucket")]).status.success() {
        assert!(Instant::now() < end, "moto does not answer");
        std::thread::sleep(Duration::from_millis(200));
    }
    Some((server, endpoint))
}

pub fn curl(arguments: &[&str]) -> Output {
    Command::new("curl").arg("-sf").args(arguments).output().unwrap()
}
