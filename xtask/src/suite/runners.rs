//! Tests that are counted: the workspace's by nextest, others by cargo. What fails is repeated
//! alone.

use std::num::NonZero;
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use vrdma_lab::artefacts::cargo;
use vrdma_lab::proc::LONG;
use vrdma_lab::{paths, proc, repeats, ui};

use super::counts::{self, Counts, Failure, culprits};
use super::tools;
use super::verdict::Verdict;

/// The targets that nextest takes too: benches would run as long as they do when they measure.
const TARGETS: &[&str] = &["--lib", "--bins", "--tests", "--examples"];

/// Some tests look at what the whole process counts or has: each has a process of its own under
/// nextest, else they take turns.
pub const ONE_THREAD: &str = "--test-threads=1";

/// The program of the end-to-end tests, each file of which is a module.
const END_TO_END: &str = "end_to_end";

/// Which of the workspace's tests are run, and how.
#[derive(Clone, Copy, Default)]
pub struct Tests {
    /// Those alone that take long.
    pub long: bool,
    /// For random numbers. Without one, they are the same ones in each run.
    pub seed: Option<u32>,
    /// The end-to-end tests alone, with each guest on another of so many workers.
    pub workers: Option<u16>,
    /// Of the end-to-end tests those alone whose names begin so, as `FILE::`, if there are some.
    pub files: &'static [&'static str],
}

/// Cargo with these arguments.
pub fn cargo_with(arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.args(arguments);
    command
}

/// Runs a command with its output in the log of that name.
pub fn logged(name: &str, command: Command) -> Result<()> {
    let log = paths::log(name)?;
    ui::unless_quick(name, Some(&log), || proc::run_logged(name, command, &log, LONG))
}

/// A seed that hardly any run had before; a message tells how to have it again.
pub fn fresh_seed(name: &str) -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = now.map_or(0, |now| now.as_secs() as u32 ^ now.subsec_nanos());
    ui::say(&format!("{name}: seeds are VRDMA_SEED={seed} PROPTEST_RNG_SEED={seed}"));
    seed
}

/// Tests that cargo runs itself: `command`, with `arguments` for libtest.
pub fn libtest(name: &str, command: &Command, arguments: &[&str]) -> Verdict {
    let mut first = twin(command);
    first.arg("--").args(arguments);
    let result = with_culprits(name, logged(name, first));
    let log = paths::log(name).and_then(|log| Ok(std::fs::read(log)?));
    let log = log.map(|log| String::from_utf8_lossy(&log).into_owned());
    let counts = log.as_ref().map(|log| Counts::of_libtest(log)).map_err(|error| anyhow!("{error:#}"));
    let failures = log.as_ref().map(|log| counts::failures_of_libtest(log)).unwrap_or_default();
    let verdict = counted(result, counts);
    repeated(name, verdict, &failures, |failure| {
        let mut again = twin(command);
        // Filters of the step would pick more.
        let options = arguments.iter().filter(|argument| argument.starts_with("--"));
        again.arg("--").args(options).args(["--exact", &failure.test]);
        again
    })
}

/// The workspace's tests: by nextest, or where it cannot be had by cargo itself. All build the
/// workspace as a whole, since what they have in common is built once then.
pub fn tests(name: &str, which: Tests) -> Verdict {
    let path = match tools::NEXTEST.search_path() {
        Ok(path) => path,
        Err(error) => {
            ui::say(&format!("note: tests take turns, which takes longer: {error:#}"));
            let (command, arguments) = which.for_cargo();
            return libtest(name, &command, &arguments);
        }
    };
    // As `.config/nextest.toml` has them.
    let profile = if which.long { "xtask-long" } else { "xtask" };
    let report = paths::workspace().join("target/nextest").join(profile).join("junit.xml");
    if let Err(error) = paths::remove(&report) {
        return Verdict::Failed(Counts::default(), error);
    }
    let mut base = which.with_environment(cargo_with(&["nextest", "run", "--workspace"]));
    base.env("PATH", path);
    let mut first = twin(&base);
    first.args(["--profile", profile, "--no-fail-fast", "--no-tests=pass"]).args(which.for_nextest());
    if !which.long {
        // Many wait for a timer most of the time: one more than there are processors keeps those at
        // work.
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        first.arg(format!("--test-threads={}", processors + 1));
    }
    let result = with_culprits(name, logged(name, first));
    let report = paths::read(&report);
    let longest = report.as_ref().map(|report| counts::longest_of_junit(report)).unwrap_or_default();
    let longest: Vec<String> = longest.iter().map(|(time, test)| format!("{time:.0} s {test}")).collect();
    ui::say(&format!("{name}: longest: {}", longest.join(", ")));
    let failures =
        report.as_ref().ok().and_then(|report| counts::failures_of_junit(report).ok()).unwrap_or_default();
    let verdict = counted(result, report.and_then(|report| Counts::of_junit(&report)));
    repeated(name, verdict, &failures, |failure| {
        let mut again = twin(&base);
        let Failure { program, test } = failure;
        let filter = format!("binary_id(={program}) & test(={test})");
        again.args(["--no-tests=fail", "--run-ignored=all", "--success-output=final", "-E", &filter]);
        again
    })
}

impl Tests {
    fn with_environment(self, mut command: Command) -> Command {
        if let Some(seed) = self.seed.map(|seed| seed.to_string()) {
            command.env("VRDMA_SEED", &seed).env("PROPTEST_RNG_SEED", &seed);
        }
        if let Some(workers) = self.workers {
            command.env("VRDMA_TEST_WORKERS", workers.to_string());
        }
        command
    }

    fn for_nextest(self) -> Vec<String> {
        let mut arguments = Vec::new();
        if self.long {
            arguments.push("--run-ignored=only".to_owned());
        }
        if self.workers.is_some() {
            let files: Vec<String> = self.files.iter().map(|file| format!("test(/^{file}/)")).collect();
            let files = if files.is_empty() { "all()".to_owned() } else { files.join(" | ") };
            let program = format!("package(=vrdma-tests) & binary(={END_TO_END})");
            arguments.extend(["-E".to_owned(), format!("{program} & ({files})")]);
        }
        arguments
    }

    /// The command, and what is for libtest.
    fn for_cargo(self) -> (Command, Vec<&'static str>) {
        let mut command = cargo_with(&["test", "--no-fail-fast"]);
        if self.workers.is_some() {
            command.args(["-p", "vrdma-tests", "--test", END_TO_END]);
        } else {
            command.arg("--workspace").args(TARGETS);
        }
        let ignored = self.long.then_some("--ignored");
        let arguments = [ONE_THREAD].into_iter().chain(ignored).chain(self.files.iter().copied());
        (self.with_environment(command), arguments.collect())
    }
}

/// Returns a copy of a command, which has no `Clone`.
fn twin(command: &Command) -> Command {
    let mut twin = Command::new(command.get_program());
    twin.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => twin.env(name, value),
            None => twin.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        twin.current_dir(directory);
    }
    twin
}

/// The verdict of tests that are counted, on a command that fails if one of them does.
fn counted(result: Result<()>, counts: Result<Counts>) -> Verdict {
    match (result, counts) {
        // A filter that picks nothing any more would pass for ever.
        (Ok(()), Ok(Counts { passed: 0, failed: 0 })) => {
            Verdict::Failed(Counts::default(), anyhow!("no test was run"))
        }
        (Ok(()), Ok(counts)) => Verdict::Passed(counts),
        (Err(error), counts) => Verdict::Failed(counts.unwrap_or_default(), error),
        (Ok(()), Err(error)) => Verdict::Failed(Counts::default(), error),
    }
}

/// Repeats what failed. Nothing is, where not each failure is of a test that the runner names: what
/// did not build, or a process of many tests that a signal ended, after which the others of it did
/// not run.
fn repeated(
    name: &str,
    verdict: Verdict,
    failures: &[Failure],
    command: impl Fn(&Failure) -> Command,
) -> Verdict {
    let Verdict::Failed(counts, error) = verdict else { return verdict };
    if failures.is_empty() || failures.len() as u64 != counts.failed {
        return Verdict::Failed(counts, error);
    }
    let names: Vec<String> = failures.iter().map(Failure::to_string).collect();
    let sorted = repeats::repeat(&names, |test, round| {
        let failure = failures.iter().find(|failure| failure.to_string() == test);
        again(name, test, round, command(failure.context("a test that failed")?))
    });
    let counts = Counts { failed: sorted.failed.len() as u64, ..counts };
    if sorted.flaky.is_empty() {
        return Verdict::Failed(counts, error);
    }
    Verdict::Flaky(counts, sorted.flaky, error)
}

/// Runs one test once more, with a log of its own. It has to have run: a name that picks nothing
/// would pass.
fn again(step: &str, test: &str, round: u32, command: Command) -> Result<()> {
    let log = repeats::log(step, test, round)?;
    let what = format!("{test}, alone, {round} of {}", repeats::REPEATS);
    let result = ui::step_with_log(&what, Some(&log), || {
        proc::run_logged(&what, command, &log, LONG)?;
        let text = std::fs::read(&log)?;
        let ran = counts::ran_one(&String::from_utf8_lossy(&text));
        ran.then_some(()).context("the runner did not find the test again")
    });
    if let Err(error) = &result {
        ui::say(&proc::indent(&format!("{error:#}")));
    }
    result
}

/// An error of a runner says at its beginning which tests did not pass: of its log only the end
/// follows.
fn with_culprits(name: &str, result: Result<()>) -> Result<()> {
    result.map_err(|error| {
        let log = paths::log(name).and_then(|log| Ok(std::fs::read(log)?)).unwrap_or_default();
        match culprits(&String::from_utf8_lossy(&log)).join(", ") {
            none if none.is_empty() => error,
            culprits => anyhow!("{culprits}\n{error:#}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_made_again_as_it_was() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo \"$A $B $PWD\""]).env("A", "1").env_remove("B").current_dir("/");
        assert_eq!(proc::output(twin(&command)).unwrap(), "1  /\n");
    }

    #[test]
    fn tests_on_workers_are_those_of_their_files() {
        let which = Tests { workers: Some(3), files: &["a::", "b::"], ..Tests::default() };
        let program = "package(=vrdma-tests) & binary(=end_to_end)";
        assert_eq!(which.for_nextest(), ["-E", &format!("{program} & (test(/^a::/) | test(/^b::/))")]);
        let all = Tests { files: &[], ..which };
        assert_eq!(all.for_nextest(), ["-E", &format!("{program} & (all())")]);
        assert!(Tests::default().for_nextest().is_empty());
        assert_eq!(Tests { long: true, ..Tests::default() }.for_nextest(), ["--run-ignored=only"]);
    }
}
