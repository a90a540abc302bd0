//! UCX's put operations over shared memory, measured by its own `ucx_perftest`. They show the speed
//! of memory that both sides may write to, without any protection.

use crate::args::Figure;
use crate::missing::missing;
use anyhow::{Result, anyhow, bail};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Name of the program.
const PROGRAM: &str = "ucx_perftest";
/// Number of puts in a window, which takes some ten milliseconds.
const RATE_COUNT: u32 = 500_000;
const LAT_COUNT: u32 = 50_000;
/// Time limits for a window, and for its server to listen.
const PATIENCE: Duration = Duration::from_secs(20);
const START: Duration = Duration::from_secs(2);

/// Puts of one size in bytes between two processes, on these processors.
#[derive(Clone, Debug)]
pub struct Ucx {
    figure: Figure,
    size: u32,
    cpus: (usize, usize),
}

impl Ucx {
    /// Creates it, and measures one window as a check.
    ///
    /// # Errors
    /// The program does not exist, or fails.
    pub fn new(figure: Figure, size: u32, cpus: (usize, usize)) -> Result<Ucx> {
        let ucx = Ucx { figure, size, cpus };
        ucx.window()?;
        Ok(ucx)
    }

    /// Returns its name in comparisons.
    pub fn name(&self) -> &'static str {
        match self.figure {
            Figure::Lat => "UCX put, half a ping-pong",
            Figure::Bw | Figure::Rate => "UCX put",
        }
    }

    /// Measures a window. Returns the mean latency in microseconds, or puts per second.
    ///
    /// # Errors
    /// The program fails.
    pub fn window(&self) -> Result<f64> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port().to_string();
        let mut server = command(&port, self.cpus.1);
        let _server = End(server
            .spawn()
            .map_err(|error| missing(format!("{PROGRAM}: {error} (Debian has it in ucx-utils)")))?);
        let (test, count) = match self.figure {
            Figure::Lat => ("ucp_put_lat", LAT_COUNT),
            Figure::Bw | Figure::Rate => ("ucp_put_bw", RATE_COUNT),
        };
        let start = Instant::now();
        loop {
            let mut client = command(&port, self.cpus.0);
            client.args([
                "-v",
                "-f",
                "-t",
                test,
                "-s",
                &self.size.to_string(),
                "-n",
                &count.to_string(),
                "127.0.0.1",
            ]);
            let output = within(client.spawn()?, PATIENCE)?;
            match parse(&String::from_utf8_lossy(&output.stdout), self.figure) {
                Some(value) => return Ok(value),
                // The server is not listening yet.
                None if start.elapsed() < START => std::thread::sleep(Duration::from_millis(2)),
                None => bail!("{PROGRAM} measures nothing: {}", last_line(&output)),
            }
        }
    }
}

fn command(port: &str, cpu: usize) -> Command {
    let mut command = Command::new(PROGRAM);
    // UCX needs one transport for its own handshake, and another one for the puts.
    command.env("UCX_TLS", "posix,tcp").env("UCX_LOG_LEVEL", "fatal");
    command.args(["-p", port, "-c", &cpu.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Parses the last line of its table. The fields are: iterations; percentile, mean and overall
/// latency; mean and overall bandwidth; mean and overall rate.
fn parse(text: &str, figure: Figure) -> Option<f64> {
    let fields: Vec<f64> =
        text.lines().next_back()?.split(',').map_while(|field| field.parse().ok()).collect();
    let &[_, _, _, latency, _, _, _, rate] = &fields[..] else { return None };
    Some(if figure == Figure::Lat { latency } else { rate }).filter(|value| *value > 0.)
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().next_back().unwrap_or("it says nothing").to_owned()
}

/// Returns the output of a program, which has to end in time.
fn within(child: Child, time: Duration) -> Result<Output> {
    let mut child = End(child);
    let start = Instant::now();
    while child.0.try_wait()?.is_none() {
        if start.elapsed() > time {
            bail!("{PROGRAM} has not ended after {} s", time.as_secs());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let [out, err] = [&mut stdout, &mut stderr];
    let missing = || anyhow!("its output is a pipe");
    std::io::Read::read_to_end(child.0.stdout.as_mut().ok_or_else(missing)?, out)?;
    std::io::Read::read_to_end(child.0.stderr.as_mut().ok_or_else(missing)?, err)?;
    Ok(Output { status: child.0.wait()?, stdout, stderr })
}

/// A program that is ended when this is dropped.
struct End(Child);

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_last_line_is_understood() {
        let text = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                    1000000,0.236,0.380,0.381,20.04,20.04,2626602,2626603\n";
        assert_eq!(parse(text, Figure::Lat), Some(0.381));
        assert_eq!(parse(text, Figure::Rate), Some(2_626_603.));
        assert_eq!(parse("", Figure::Rate), None);
        assert_eq!(parse("1,2,3", Figure::Rate), None);
        assert_eq!(parse(text.lines().next().unwrap(), Figure::Rate), None);
    }
}
