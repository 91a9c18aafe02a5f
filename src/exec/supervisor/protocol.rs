//! What the engine and its supervisor say to each other, over a pair of sockets that also carries open files.

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

use crate::exec::confine::policy::SandboxPolicy;
use crate::exec::confine::{Enforcement, SandboxLevel};

/// One end of the connection.
#[derive(Debug)]
pub(in crate::exec) struct SupervisorLink(UnixStream);

/// What the engine asks for.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::exec) enum SupervisorCommand {
    /// How to confine what will be started. The first message, once.
    Confine {
        /// What is wanted.
        policy: Box<SandboxPolicy>,
        /// The highest level that is tried.
        ceiling: SandboxLevel,
        /// Why it is not the highest there is.
        why: Option<String>,
    },
    /// Start a command. Its words travel as [`Words`], its standard files beside them.
    Start(CommandTimeouts),
    /// Stop the command that runs.
    Stop,
}

/// What the supervisor answers.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::exec) enum SupervisorReport {
    /// It is ready, and this is how commands are confined.
    Ready(Enforcement),
    /// The level cannot be had; another supervisor may try the next lower one.
    Lower(String),
    /// Commands cannot be confined in the way that was asked for.
    Unable(String),
    /// There is no place for temporary files.
    NoTemp(String),
    /// There are too many processes or threads already, or too little memory: no level could be tried.
    NoRoom(String),
    /// The command runs.
    Started {
        /// Its process, as the supervisor numbers it.
        pid: i32,
    },
    /// The command could not be started.
    Failed(StartFailure),
    /// The command has ended, and so has everything that it started.
    Ended {
        /// How.
        ended: CommandReport,
        /// What it had put where nothing may be, which was renamed.
        aside: Vec<PathBuf>,
        /// Protected paths that it had changed, which are as they were before.
        restored: Vec<PathBuf>,
    },
}

/// Why a command could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::exec) struct StartFailure {
    /// What the system said.
    pub errno: Option<i32>,
    /// The same, for people.
    pub error: String,
    /// Whether its folder is there, as the supervisor sees it.
    pub folder_exists: bool,
}

/// How long the phases of a command's end may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::exec) struct CommandTimeouts {
    /// From its start to the first signal.
    pub timeout: Option<Duration>,
    /// From the first signal to the last.
    pub kill: Duration,
    /// From its end to the end of what it left in the background.
    pub drain: Duration,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::exec) struct CommandReport {
    /// Why it was stopped, if it was.
    pub stopped: Option<StopCause>,
    /// Its status; none when it could not even be killed.
    pub status: Option<ProcessStatus>,
    /// How many processes it left behind, which were killed.
    pub strays: u32,
}

/// Why a command was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::exec) enum StopCause {
    /// Its time was over.
    TimedOut,
    /// Nobody waits for it any more.
    Cancelled,
    /// It used more memory than it may.
    TooMuchMemory,
}

/// The status of a process that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::exec) enum ProcessStatus {
    /// It exited with this code.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
}

/// The words of a command: none of them can contain a NUL byte, which therefore stands between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::exec) struct CommandWords {
    /// Where it runs.
    pub cwd: PathBuf,
    /// What is added to its environment.
    pub env: Vec<(OsString, OsString)>,
    /// Program and arguments.
    pub argv: Vec<OsString>,
}

/// A message with what travels beside it.
pub(in crate::exec) struct ReceivedMessage<T> {
    pub message: T,
    pub payload: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

/// The longest message that is taken; a command line is far shorter.
const MAX_MESSAGE: usize = 64 << 20;

/// Open files that travel with a message, at the most.
const MAX_FILES: usize = 3;

impl SupervisorLink {
    /// Returns the two ends of a new connection.
    pub(in crate::exec) fn pair() -> io::Result<(Self, Self)> {
        UnixStream::pair().map(|(a, b)| (Self(a), Self(b)))
    }

    /// Takes a socket for a link.
    pub(in crate::exec) fn from_socket(socket: OwnedFd) -> Self {
        Self(socket.into())
    }

    /// Returns the socket.
    pub(in crate::exec) fn into_socket(self) -> OwnedFd {
        self.0.into()
    }

    /// Returns another handle of the same end.
    pub(in crate::exec) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Returns whether the other end is gone altogether, and not only silent for ever.
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
        let sent = retry_on_intr(|| sendmsg(&self.0, &slices, &mut control, send_flags()))?;
        (&self.0).write_all(&frame[sent..])
    }

    /// Waits for a message; none when the other end is gone.
    pub(in crate::exec) fn receive<T: DeserializeOwned>(
        &self,
    ) -> io::Result<Option<ReceivedMessage<T>>> {
        let mut head = [0; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut head)];
        let got =
            retry_on_intr(|| recvmsg(&self.0, &mut slices, &mut control, receive_flags()))?.bytes;
        if got == 0 {
            return Ok(None);
        }
        let files: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .collect();
        // Where it can't be said on arrival that what is started must not inherit them.
        #[cfg(not(target_os = "linux"))]
        for file in &files {
            rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC)?;
        }
        (&self.0).read_exact(&mut head[got..])?;
        let [json, payload] = [&head[..4], &head[4..]].map(|length| {
            length.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte))
        });
        if json > MAX_MESSAGE || payload > MAX_MESSAGE {
            return Err(io::ErrorKind::InvalidData.into());
        }
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

/// An end that is gone is an error and no signal.
#[cfg(target_os = "linux")]
fn send_flags() -> SendFlags {
    SendFlags::NOSIGNAL
}

/// Here the signal has to come, and engine and supervisor ignore or catch it.
#[cfg(not(target_os = "linux"))]
fn send_flags() -> SendFlags {
    SendFlags::empty()
}

/// Files that arrive must not be inherited by what is started meanwhile.
#[cfg(target_os = "linux")]
fn receive_flags() -> RecvFlags {
    RecvFlags::CMSG_CLOEXEC
}

#[cfg(not(target_os = "linux"))]
fn receive_flags() -> RecvFlags {
    RecvFlags::empty()
}

impl CommandWords {
    /// Writes the words down.
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

    /// Reads the words that [`encode`](Self::encode) wrote; none when they are something else.
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
    fn a_message_arrives_with_its_payload_and_its_files() {
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
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "x");
        assert!(b.receive::<SupervisorCommand>().unwrap().is_none());
    }

    #[test]
    fn words_arrive_as_they_are() {
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
