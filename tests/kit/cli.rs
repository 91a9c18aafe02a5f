//! A folder to run the command in, with a home of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use architect::app::verify_session;
use architect::journal::{Durability, SessionStore};
use serde_json::Value;
use wait_timeout::ChildExt;

use super::server::Server;
use super::system::wait_within;

/// The longest that a run may take here.
const MAX_RUN_TIME: Duration = Duration::from_secs(60);

/// A workspace, and a home of its own.
pub(crate) struct CliFixture {
    folder: tempfile::TempDir,
}

/// A run that is over.
pub(crate) struct CommandResult {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl CliFixture {
    pub(crate) fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["work", "home"] {
            fs::create_dir(world.folder.path().join(folder)).unwrap();
        }
        world
    }

    /// Returns the workspace, or something in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Returns a folder for temporary files, which doesn't exist yet.
    pub(crate) fn temp(&self) -> PathBuf {
        self.folder.path().join("temp")
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns the records of all sessions.
    pub(crate) fn journals(&self) -> String {
        let folder = self.home().join(".local/state/architect/sessions");
        let sessions = fs::read_dir(folder).into_iter().flatten().flatten();
        let journals = sessions.map(|session| session.path());
        let read = |path: PathBuf| match path.is_dir() {
            true => {
                let files = fs::read_dir(path).into_iter().flatten().flatten();
                files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect()
            }
            false => fs::read_to_string(path).unwrap_or_default(),
        };
        journals.map(read).collect()
    }

    /// Returns the command with these arguments, in the environment of this fixture and no other.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_architect"));
        command
            .args(args)
            .current_dir(self.path(""))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> CommandResult {
        wait_for_exit(self.command(args).spawn().unwrap())
    }

    /// Returns the command for a task whose model is this server.
    pub(crate) fn command_with_server(&self, server: &Server, args: &[&str]) -> Command {
        let base = server.url("/v1");
        let model = ["run", "Do it.", "--model", "openai-chat/fake", "--api-base", &base];
        let mut command = self.command(&[&model[..], args].concat());
        command.env("OPENAI_API_KEY", "sk-test-canary");
        command
    }

    /// Runs a task whose model is this server.
    pub(crate) fn run_with_server(&self, server: &Server, args: &[&str]) -> CommandResult {
        wait_for_exit(self.command_with_server(server, args).spawn().unwrap())
    }

    /// Runs a task whose model plays this script.
    pub(crate) fn run_script(&self, script: &str, args: &[&str]) -> CommandResult {
        let path = self.script_model(script);
        let args = [&["run", "Do it.", "--model", &path][..], args].concat();
        self.run(&args)
    }

    /// Returns the name of a model that plays this script.
    pub(crate) fn script_model(&self, script: &str) -> String {
        let path = self.folder.path().join("script.toml");
        fs::write(&path, script).unwrap();
        format!("scripted/{}", path.display())
    }
}

/// Checks each journal that the test leaves behind: it must replay to the state of its run, and yield the requests that
/// were sent.
impl Drop for CliFixture {
    fn drop(&mut self) {
        let root = self.home().join(".local/state/architect");
        if std::thread::panicking() || !root.join("sessions").exists() {
            return;
        }
        let store = SessionStore::open(&root, Durability::Os).unwrap();
        for listed in store.list().unwrap() {
            let verified = verify_session(&store, listed.session, None).unwrap();
            assert_eq!(verified.divergence, None);
            assert_eq!(verified.wrong_hash, None);
            assert_eq!(verified.requests.difference, None);
        }
    }
}

/// Waits for the end of a process.
pub(crate) fn wait_for_exit(mut child: Child) -> CommandResult {
    let begun = Instant::now();
    let (out, err) =
        (read_in_background(child.stdout.take()), read_in_background(child.stderr.take()));
    let status = child.wait_timeout(MAX_RUN_TIME).unwrap().unwrap_or_else(|| {
        let _ = child.kill();
        panic!("the command hangs")
    });
    let took = begun.elapsed();
    let (out, err) = (out.join().unwrap(), err.join().unwrap());
    let code = Output { status, stdout: Vec::new(), stderr: Vec::new() }.status.code();
    CommandResult { code: code.unwrap_or(-1), out, err, took }
}

fn read_in_background(
    pipe: Option<impl std::io::Read + Send + 'static>,
) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl CommandResult {
    /// Returns standard output as one JSON document.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }

    /// Returns standard output as a document on each line.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns exit code, stop reason and status.
    pub(crate) fn outcome(&self) -> (i32, String, String) {
        let json = self.json();
        let text = |key: &str| json[key].as_str().unwrap_or("-").to_owned();
        assert_eq!(json["exit_code"], self.code);
        (self.code, text("stop_reason"), text("status"))
    }
}

/// Returns an expected outcome: exit code, stop reason and status.
pub(crate) fn outcome(code: i32, reason: &str, status: &str) -> (i32, String, String) {
    (code, reason.to_owned(), status.to_owned())
}

/// Waits until something is so, as long as a run may take.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    wait_within(MAX_RUN_TIME, what, is_so);
}
