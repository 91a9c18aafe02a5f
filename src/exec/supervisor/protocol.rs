//! Messages between the engine and its supervisors, over a pair of sockets that also transfers open files.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::exec::command::CommandEnd;
use crate::exec::command_env::Variable;
use crate::exec::confine::policy::SandboxPolicy;
use crate::exec::confine::{Enforcement, SandboxLevel};
use crate::exec::stored_path;

/// One end of the connection.
#[derive(Debug)]
pub(in crate::exec) struct SupervisorLink(UnixStream);

/// A request of the engine.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::exec) enum SupervisorCommand {
    /// Confine commands. This is the first message, sent once.
    Confine {
        /// The policy to enforce.
        policy: Box<SandboxPolicy>,
        /// The highest level to try.
        ceiling: SandboxLevel,
        /// The reason for a level below the highest one of the system.
        why: Option<String>,
    },
    /// Start a command. The payload is its [`CommandWords`], and the attached files are its standard files.
    Start {
        /// The time from the start to SIGTERM.
        timeout: Option<Duration>,
        /// The time from SIGTERM to SIGKILL.
        kill_timeout: Duration,
    },
    /// Stop the running command.
    Stop,
}

/// An answer of the supervisor.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::exec) enum SupervisorReport {
    /// The supervisor is ready, with this confinement.
    Ready(Enforcement),
    /// The level is not available for this reason; another supervisor may try the next lower one.
    Lower(String),
    /// Commands cannot be confined as required.
    Unable(String),
    /// The folder for temporary files cannot be created.
    NoTemp(String),
    /// The system has too many processes or threads, or too little memory: no level could be tried.
    OutOfResources(String),
    /// The command is running.
    Started {
        /// The process ID, in the supervisor's namespace.
        pid: i32,
    },
    /// The command could not be started.
    Failed(StartFailure),
    /// The command has ended, together with everything that it started.
    Ended(CommandReport),
}

/// The reason why a command could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::exec) struct StartFailure {
    /// The system's error number.
    pub errno: Option<i32>,
    /// The error message.
    pub error: String,
    /// Whether the working directory exists, as seen by the supervisor.
    pub folder_exists: bool,
}

/// The end of a command and of everything that it started.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::exec) struct CommandReport {
    /// The end of the command itself.
    pub end: CommandEnd,
    /// The number of processes that were still running at the end, and were killed.
    pub strays: u32,
    /// Files that the command created at protected paths; they have been renamed.
    #[serde(with = "stored_path")]
    pub renamed: Vec<PathBuf>,
    /// Protected paths that the command changed; they have been restored.
    #[serde(with = "stored_path")]
    pub restored: Vec<PathBuf>,
    /// A sentence for each protected path that could not be restored.
    pub unrestored: Vec<String>,
    /// The reason why protected paths could not be recorded before the start, so that none was restored.
    pub unrecorded: Option<String>,
}

impl From<CommandEnd> for CommandReport {
    fn from(end: CommandEnd) -> Self {
        Self {
            end,
            strays: 0,
            renamed: Vec::new(),
            restored: Vec::new(),
            unrestored: Vec::new(),
            unrecorded: None,
        }
    }
}

/// The words of a command, encoded with a NUL byte after each; no word contains one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::exec) struct CommandWords {
    /// The working directory.
    pub cwd: PathBuf,
    /// Variables added to the environment of all commands.
    pub env: Vec<Variable>,
    /// Program and arguments.
    pub argv: Vec<OsString>,
}

/// A message with its payload and open files.
pub(in crate::exec) struct ReceivedMessage<T> {
    pub message: T,
    pub payload: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

/// The maximum length of a message, in bytes; a command line is far shorter.
const MAX_MESSAGE: usize = 64 << 20;

/// The maximum number of open files attached to a message.
const MAX_FILES: usize = 3;

impl SupervisorLink {
    /// Returns both ends of a new connection.
    pub(in crate::exec) fn pair() -> io::Result<(Self, Self)> {
        UnixStream::pair().map(|(a, b)| (Self(a), Self(b)))
    }

    /// Returns a link over a socket.
    pub(in crate::exec) fn from_socket(socket: OwnedFd) -> Self {
        Self(socket.into())
    }

    /// Returns the socket.
    pub(in crate::exec) fn into_socket(self) -> OwnedFd {
        self.0.into()
    }

    /// Duplicates this end.
    pub(in crate::exec) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Makes the worker at the other end kill the running command, and end. Closing the link instead would look like
    /// the death of the engine, and the worker would do the engine's cleanup.
    pub(super) fn finish(&self) {
        // An error means that the worker has ended.
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }

    /// Returns whether the other end is closed, and not just shut down for writing.
    #[cfg(target_os = "linux")]
    pub(in crate::exec) fn is_disconnected(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};

        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        let polled = retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())));
        polled.is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }

    /// Sends a message, with a payload and open files.
    pub(in crate::exec) fn send(
        &self,
        message: &impl Serialize,
        payload: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let json = serde_json::to_vec(message)?;
        let mut frame = Vec::with_capacity(8 + json.len() + payload.len());
        for length in [json.len(), payload.len()] {
            let length = u32::try_from(length).map_err(|_| io::ErrorKind::ArgumentListTooLong)?;
            frame.extend(length.to_le_bytes());
        }
        frame.extend(json);
        frame.extend(payload);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let slices = [IoSlice::new(&frame)];
        let sent = retry_on_intr(|| sendmsg(&self.0, &slices, &mut control, FLAGS.0))?;
        (&self.0).write_all(&frame[sent..])
    }

    /// Waits for a message; `None` if the other end is closed.
    pub(in crate::exec) fn receive<T: DeserializeOwned>(
        &self,
    ) -> io::Result<Option<ReceivedMessage<T>>> {
        let mut head = [0; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut head)];
        let got = retry_on_intr(|| recvmsg(&self.0, &mut slices, &mut control, FLAGS.1))?.bytes;
        if got == 0 {
            return Ok(None);
        }
        let mut files: Vec<OwnedFd> = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                files.extend(received);
            }
        }
        // This system cannot set close-on-exec when a file is received.
        #[cfg(not(target_os = "linux"))]
        for file in &files {
            rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC)?;
        }
        (&self.0).read_exact(&mut head[got..])?;
        let (lengths, _) = head.as_chunks();
        let length = |index: usize| usize::try_from(u32::from_le_bytes(lengths[index])).ok();
        let (Some(json @ ..=MAX_MESSAGE), Some(payload @ ..=MAX_MESSAGE)) = (length(0), length(1))
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut body = vec![0; json + payload];
        (&self.0).read_exact(&mut body)?;
        let payload = body.split_off(json);
        Ok(Some(ReceivedMessage { message: serde_json::from_slice(&body)?, payload, files }))
    }
}

impl AsFd for SupervisorLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// With a closed end, sending fails instead of raising a signal. Received files must not be inherited by new processes.
#[cfg(target_os = "linux")]
const FLAGS: (SendFlags, RecvFlags) = (SendFlags::NOSIGNAL, RecvFlags::CMSG_CLOEXEC);

/// The signal cannot be suppressed here; engine and supervisor ignore or catch it.
#[cfg(not(target_os = "linux"))]
const FLAGS: (SendFlags, RecvFlags) = (SendFlags::empty(), RecvFlags::empty());

impl CommandWords {
    /// Encodes the words.
    ///
    /// # Errors
    ///
    /// Fails when one of them contains a NUL byte.
    pub(in crate::exec) fn encode(&self) -> io::Result<Vec<u8>> {
        let count = self.env.len().to_string();
        let env = self.env.iter().flat_map(|(name, value)| [name.as_os_str(), value.as_os_str()]);
        let words = [OsStr::new(&count), self.cwd.as_os_str()]
            .into_iter()
            .chain(env)
            .chain(self.argv.iter().map(OsString::as_os_str));
        let mut bytes = Vec::new();
        for word in words {
            if word.as_bytes().contains(&0) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "a NUL character cannot be part of a command",
                ));
            }
            bytes.extend_from_slice(word.as_bytes());
            bytes.push(0);
        }
        Ok(bytes)
    }

    /// Decodes the output of [`encode`](Self::encode); `None` if invalid.
    pub(in crate::exec) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_suffix(&[0])?;
        let mut words =
            bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec()));
        let count: usize = words.next()?.to_str()?.parse().ok()?;
        let cwd = words.next()?.into();
        let mut env = Vec::new();
        for _ in 0..count {
            env.push((words.next()?, words.next()?));
        }
        Some(Self { cwd, env, argv: words.collect() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::thread;

    use super::*;

    #[test]
    fn a_message_carries_its_payload_and_files() {
        let (a, b) = SupervisorLink::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let payload = vec![7; 3 << 20];
        let sent = payload.clone();
        let sender = thread::spawn(move || {
            a.send(&SupervisorCommand::Stop, &sent, &[writer.as_fd()]).unwrap();
        });
        let received = b.receive::<SupervisorCommand>().unwrap().unwrap();
        sender.join().unwrap();
        assert_eq!(received.message, SupervisorCommand::Stop);
        assert_eq!(received.payload, payload);
        let [file] = received.files.try_into().unwrap();
        File::from(file).write_all(b"x").unwrap();
        let mut written = String::new();
        reader.read_to_string(&mut written).unwrap();
        assert_eq!(written, "x");
        assert!(b.receive::<SupervisorCommand>().unwrap().is_none());
    }

    #[test]
    fn words_are_decoded_as_encoded() {
        let odd = OsString::from_vec(vec![b'a', 0xff, b'\n']);
        let words = CommandWords {
            cwd: "/w".into(),
            env: vec![("A".into(), odd.clone()), ("B".into(), "".into())],
            argv: vec!["sh".into(), "".into(), odd],
        };
        assert_eq!(CommandWords::decode(&words.encode().unwrap()), Some(words));
        let nul = CommandWords { argv: vec!["a\0b".into()], ..CommandWords::default() };
        assert!(nul.encode().is_err());
        assert_eq!(CommandWords::decode(b"2\0/w\0a\0"), None);
    }
}
