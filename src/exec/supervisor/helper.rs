//! The supervisor process: this program, started again.
//!
//! Commands should not be started from an engine with many threads and secrets, and the cleanup has to outlive the
//! engine for a moment, so the supervisor is a separate process. Starting it manually gains nothing: it can only lose
//! privileges of its parent.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
#[cfg(target_os = "linux")]
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Resource, Rlimit, WaitOptions, getrlimit, setrlimit, setsid, wait};

use super::protocol::{ReceivedMessage, SupervisorCommand, SupervisorLink, SupervisorReport};
use crate::exec::confine::policy::{SandboxMode, SandboxPolicy};
use crate::exec::confine::temp_folder;
#[cfg(target_os = "linux")]
use crate::exec::repository::DeferredCleanup;
use crate::workspace::create_canonical;

/// The argument that starts the program as a supervisor.
pub const ARGUMENT: &str = "__exec";

/// The second argument of the first process of a namespace. This process reads its instructions from standard input,
/// and is connected to the engine by standard output.
#[cfg(target_os = "linux")]
pub(in crate::exec) const INIT_ARGUMENT: &str = "first";

/// The second argument of the process that replaces an engine that ends at once; the third argument is its exit code.
const ENDING_ARGUMENT: &str = "ending";

/// The time for which an engine that ends at once waits for its supervisors.
const ENDING_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval of these checks.
const ENDING_INTERVAL: Duration = Duration::from_millis(2);

/// Ends this process with a code, once the supervisors that it started have ended and cleaned up after their commands,
/// or after two seconds at most. Returns only if that is not possible.
///
/// The process is replaced by another program that only waits. So all threads are gone, and all connections to
/// supervisors are closed, whatever the threads were doing.
pub fn end_after_supervisors(code: u8) {
    let program = match std::env::current_exe() {
        Ok(path) if !cfg!(target_os = "linux") => path,
        Ok(_) | Err(_) => "/proc/self/exe".into(),
    };
    let words = [ARGUMENT, ENDING_ARGUMENT, &code.to_string()].map(str::to_owned);
    let error = std::process::Command::new(program).args(words).env_clear().exec();
    log::debug!("the supervisors are not waited for: {error}");
}

/// Waits for all children, and returns the exit code of the engine.
fn wait_for_children(code: Option<u8>) -> ExitCode {
    let until = Instant::now() + ENDING_TIMEOUT;
    while Instant::now() < until {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::INTR) => thread::sleep(ENDING_INTERVAL),
            Err(_) => break,
        }
    }
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The program that runs supervisors, if it is not this one.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the program that runs supervisors in place of this one. Further calls have no effect.
pub fn set_program(program: PathBuf) {
    let _ = PROGRAM.set(program);
}

/// Returns the program that runs supervisors.
pub(super) fn program() -> PathBuf {
    match PROGRAM.get() {
        Some(program) => program.clone(),
        // The link leads to the running program, even if its file has been replaced.
        None if cfg!(target_os = "linux") => "/proc/self/exe".into(),
        None => std::env::current_exe().unwrap_or_else(|_| "architect".into()),
    }
}

/// Returns whether the program was started as a supervisor, and must call [`main`].
pub fn is_requested(first: Option<&OsStr>) -> bool {
    first == Some(OsStr::new(ARGUMENT))
}

/// Denies other processes of this user access to the memory and environment of this one, which hold keys. Has no effect
/// on systems other than Linux.
///
/// # Errors
///
/// Fails when Linux denies it.
pub fn forbid_inspection() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Supervises commands until the engine, at the other end of standard input, has ended.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(2);
    if words.next().as_deref() == Some(OsStr::new(ENDING_ARGUMENT)) {
        return wait_for_children(words.next().and_then(|code| code.to_str()?.parse().ok()));
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    close_inherited_on_exec();
    // Without a controlling terminal, programs cannot ask for a password, and the user's keys send no signals.
    let _ = setsid();
    reset_signals()?;
    #[cfg(target_os = "linux")]
    if std::env::args_os().nth(2).as_deref() == Some(OsStr::new(INIT_ARGUMENT)) {
        let link = SupervisorLink::from_socket(fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?);
        rustix::stdio::dup2_stdout(fs::File::open("/dev/null")?)?;
        let mut inherited = Vec::new();
        io::stdin().read_to_end(&mut inherited)?;
        return crate::exec::confine::run_init(&link, serde_json::from_slice(&inherited)?);
    }
    let link = SupervisorLink::from_socket(fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    let Some(ReceivedMessage {
        message: SupervisorCommand::Confine { policy, ceiling, why }, ..
    }) = link.receive::<SupervisorCommand>()?
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let policy = *policy;
    apply_limits(&policy);
    if let Err(error) = temp_folder::create(&policy) {
        return link.send(&SupervisorReport::NoTemp(error.to_string()), &[], &[]);
    }
    for path in policy.writable.iter().filter(|_| policy.mode == SandboxMode::WorkspaceWrite) {
        // The next start of the program may already have removed it, as the git folder of the work tree of a killed
        // run.
        #[cfg(target_os = "linux")]
        if link.is_disconnected() {
            break;
        }
        // If a path cannot be created, writing to it is denied and explained as usual. A command may have put a link
        // there.
        let _ = create_canonical(path);
    }
    if policy.mode == SandboxMode::WorkspaceWrite
        && let Err(error) = policy.caches.create_folders(&policy.workspace)
    {
        return link.send(&SupervisorReport::NoTemp(format!("private caches: {error}")), &[], &[]);
    }
    #[cfg(target_os = "linux")]
    let (leftover, survivor, engine) = (
        temp_folder::TempCleanup::open(&policy),
        DeferredCleanup::open(&policy),
        link.try_clone()?,
    );
    let served = serve(link, policy, ceiling, why);
    #[cfg(target_os = "linux")]
    if engine.is_disconnected() {
        survivor.into_iter().for_each(DeferredCleanup::run);
        leftover.into_iter().for_each(temp_folder::TempCleanup::run);
    }
    served
}

/// Marks all open files except standard input, output and error as close-on-exec.
///
/// Files opened by this program have the mark; files inherited from its parent may lack it. Must be called while there
/// is one thread.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn close_inherited_on_exec() {
    let Ok(entries) = fs::read_dir("/dev/fd") else { return };
    let number = |name: std::ffi::OsString| name.to_str().and_then(|name| name.parse::<i32>().ok());
    // The list contains the folder's own descriptor, which `collect` closes.
    let open: Vec<i32> = entries.flatten().filter_map(|entry| number(entry.file_name())).collect();
    for file in open.into_iter().filter(|file| *file > 2) {
        // SAFETY: the number was just listed as open, or belonged to the listing itself, which is closed; there is no
        // second thread that could open or close files meanwhile. A number that is not open makes the call fail, and
        // nothing is read, written or closed.
        let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(file) };
        let _ = fcntl_setfd(file, FdFlags::CLOEXEC);
    }
}

#[cfg(target_os = "linux")]
use crate::exec::confine::serve;

#[cfg(not(target_os = "linux"))]
#[expect(clippy::needless_pass_by_value, reason = "as the other one takes them")]
fn serve(
    link: SupervisorLink,
    policy: SandboxPolicy,
    _: crate::exec::confine::SandboxLevel,
    _: Option<String>,
) -> io::Result<()> {
    use super::process_tree::ProcessTree;
    use super::supervise::{self, SupervisionRules};
    use crate::exec::confine::Enforcement;
    #[cfg(target_os = "macos")]
    use crate::exec::confine::SandboxLevel;
    use crate::exec::protected::snapshot::ProtectedPaths;

    #[cfg(target_os = "macos")]
    let (enforced, wrap) = if policy.is_off() {
        (Ok(Enforcement::none()), None)
    } else {
        let enforced =
            Enforcement { level: SandboxLevel::Seatbelt, gaps: Vec::new(), reason: None };
        (Ok(enforced), Some(crate::exec::confine::seatbelt::profile(&policy)))
    };
    #[cfg(not(target_os = "macos"))]
    let (enforced, wrap) =
        (Enforcement::unconfined(&policy, "not on this system".to_owned()), None::<String>);
    match enforced {
        Ok(enforced) => link.send(&SupervisorReport::Ready(enforced), &[], &[])?,
        Err(why) => return link.send(&SupervisorReport::Unable(why), &[], &[]),
    }
    let rules = SupervisionRules::new(&policy, ProcessTree::Group, ProtectedPaths::empty());
    let caches: Vec<_> = policy.caches.caches.iter().collect();
    let variables = match policy.mode {
        SandboxMode::WorkspaceWrite => policy.caches.variables(&caches),
        SandboxMode::ReadOnly | SandboxMode::Off => Vec::new(),
    };
    supervise::serve(&link, &rules, |mut start| {
        if let Some(profile) = &wrap {
            let sandbox = ["/usr/bin/sandbox-exec", "-p", profile].map(std::ffi::OsString::from);
            start.words.argv.splice(..0, sandbox);
            // Variables set for the command take precedence.
            start.words.env.splice(..0, variables.iter().cloned());
        }
        start.spawn(|command| command)
    })
}

/// Resets ignored signals to their default, since commands inherit the setting.
fn reset_signals() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    for signal in [SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// Limits the resources of this process, and so of all commands.
fn apply_limits(policy: &SandboxPolicy) {
    // The limit is too small for a core file; unlike 0, it also keeps the kernel from piping a dump to a program.
    lower_limit(Resource::Core, Some(1));
    lower_limit(Resource::Fsize, policy.limits.file_size);
    lower_limit(Resource::Nofile, policy.limits.open_files);
    // When memory runs out, the kernel should kill the command. Raising a process's own score needs no privilege.
    let _ = fs::write("/proc/self/oom_score_adj", "800");
}

/// Lowers a limit of this process and its children. Errors are ignored.
pub(in crate::exec) fn lower_limit(resource: Resource, most: Option<u64>) {
    let now = getrlimit(resource);
    let least = |limit: Option<u64>| match (limit, most) {
        (Some(limit), Some(most)) => Some(limit.min(most)),
        (limit, most) => limit.or(most),
    };
    let _ =
        setrlimit(resource, Rlimit { current: least(now.current), maximum: least(now.maximum) });
}
