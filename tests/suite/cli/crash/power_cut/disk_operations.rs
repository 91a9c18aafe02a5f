//! Operations on a file system, from the log of `strace` for a run.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// An action of a process of the run. Paths are below the traced root.
#[derive(Clone, Debug)]
pub(super) enum DiskOperation {
    /// A file is opened, and created if it doesn't exist.
    Create(PathBuf),
    /// Bytes are written, at the end by default.
    Write { path: PathBuf, at: Option<usize>, bytes: Vec<u8> },
    /// A file gets this length.
    Truncate(PathBuf, usize),
    /// A file or folder is made durable.
    Sync(PathBuf),
    /// A file gets another name.
    Rename(PathBuf, PathBuf),
    /// A file gets one more name.
    Link(PathBuf, PathBuf),
    /// A name is removed.
    Remove(PathBuf),
    /// A folder is made.
    Mkdir(PathBuf),
    /// An effect that no power cut takes back.
    Effect(OutsideEffect),
}

/// An effect outside of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutsideEffect {
    /// A command of the model began.
    Ran,
    /// The delivery of a message was reported.
    Steered,
    /// The result of the run was printed.
    Answered,
}

/// The system calls that have to be recorded.
pub(super) const TRACED_SYSCALLS: &str = "trace=open,openat,openat2,creat,write,pwrite64,writev,pwritev,pwritev2,ftruncate,\
     truncate,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,rmdir,mkdir,mkdirat,execve";

/// Returns the bytes of a text in which each is written as `\xNN`.
fn decode(text: &str) -> Vec<u8> {
    let digits = text.split("\\x").skip(1);
    digits.map(|digits| u8::from_str_radix(&digits[..2], 16).unwrap()).collect()
}

/// Returns the path of an open file; `None` if the file no longer has a name.
fn opened(argument: &str) -> Option<PathBuf> {
    let (path, rest) = argument.split_once('<')?.1.split_once('>')?;
    let path = String::from_utf8(decode(path)).ok()?;
    (!path.ends_with("(deleted)") && !rest.contains("deleted")).then(|| path.into())
}

/// Returns the path of a name in a folder.
fn named(folder: &str, name: &str) -> PathBuf {
    let name = PathBuf::from(String::from_utf8(decode(name)).unwrap());
    opened(folder).map_or_else(|| name.clone(), |folder| folder.join(&name))
}

/// Returns all strings among the arguments of a call, concatenated.
fn strings(arguments: &str) -> Vec<u8> {
    arguments.split('"').skip(1).step_by(2).flat_map(decode).collect()
}

/// Reads the log of a run: the operations below a root, except for paths that `is_left_out`.
pub(super) fn parse_log(
    log: &str,
    root: &Path,
    is_left_out: impl Fn(&Path) -> bool,
) -> Vec<DiskOperation> {
    let mut recorder = StraceParser::default();
    let mut ops = Vec::new();
    for line in log.lines() {
        ops.extend(recorder.line(line));
    }
    let within = |path: &mut PathBuf| {
        let inside = path.strip_prefix(root).map(Path::to_owned);
        inside.is_ok_and(|inside| {
            *path = inside;
            !is_left_out(path)
        })
    };
    ops.retain_mut(|op| match op {
        DiskOperation::Create(path)
        | DiskOperation::Write { path, .. }
        | DiskOperation::Truncate(path, _)
        | DiskOperation::Sync(path)
        | DiskOperation::Remove(path)
        | DiskOperation::Mkdir(path) => within(path),
        DiskOperation::Rename(from, to) | DiskOperation::Link(from, to) => {
            within(from) && within(to)
        }
        DiskOperation::Effect(_) => true,
    });
    ops
}

#[derive(Default)]
struct StraceParser<'a> {
    /// The beginnings of unfinished calls.
    open: HashMap<&'a str, &'a str>,
    /// Processes that send a message.
    senders: HashSet<&'a str>,
}

impl<'a> StraceParser<'a> {
    /// Parses the next line. A call counts when it has returned.
    fn line(&mut self, line: &'a str) -> Vec<DiskOperation> {
        let Some((process, line)) = line.split_once(' ') else { return Vec::new() };
        let line = line.trim_start();
        if line.starts_with("+++ exited with 0") && self.senders.remove(process) {
            return vec![DiskOperation::Effect(OutsideEffect::Steered)];
        }
        if let Some(begun) = line.strip_suffix(" <unfinished ...>") {
            self.open.insert(process, begun);
            return Vec::new();
        }
        let whole = match line.strip_prefix("<... ") {
            Some(rest) => {
                let rest = rest.split_once(" resumed>").unwrap().1;
                let Some(begun) = self.open.remove(process) else { return Vec::new() };
                format!("{begun}{rest}")
            }
            None => line.to_owned(),
        };
        let Some((call, result)) = whole.rsplit_once(" = ") else { return Vec::new() };
        let Some((name, arguments)) = call.split_once('(') else { return Vec::new() };
        match result.starts_with(['-', '?']) {
            true => Vec::new(),
            false => self.call(process, name, arguments.trim_end().trim_end_matches(')'), result),
        }
    }

    fn call(
        &mut self,
        process: &'a str,
        name: &str,
        arguments: &str,
        result: &str,
    ) -> Vec<DiskOperation> {
        let fields: Vec<&str> = arguments.split(", ").collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or_default();
        let number = |text: &str| text.split('<').next().unwrap().parse::<usize>().unwrap();
        let path = |at: usize| PathBuf::from(String::from_utf8(decode(field(at))).unwrap());
        let file = opened(field(0));
        match (name, file) {
            ("open" | "openat" | "openat2" | "creat", _) => {
                let Some(path) = opened(result) else { return Vec::new() };
                let is_made = arguments.contains("O_CREAT") || name == "creat";
                let is_emptied = arguments.contains("O_TRUNC") || name == "creat";
                let made = is_made.then(|| DiskOperation::Create(path.clone()));
                made.into_iter()
                    .chain(is_emptied.then_some(DiskOperation::Truncate(path, 0)))
                    .collect()
            }
            ("write" | "writev" | "pwrite64" | "pwritev" | "pwritev2", file) => {
                let mut bytes = strings(arguments);
                bytes.truncate(number(result));
                let is_result = || bytes.windows(13).any(|part| part == b"\"stop_reason\"");
                if field(0).starts_with("1<") && is_result() {
                    return vec![DiskOperation::Effect(OutsideEffect::Answered)];
                }
                let at = name.starts_with('p').then(|| number(fields.last().unwrap()));
                file.map(|path| DiskOperation::Write { path, at, bytes }).into_iter().collect()
            }
            ("ftruncate", Some(path)) => vec![DiskOperation::Truncate(path, number(field(1)))],
            ("truncate", _) => vec![DiskOperation::Truncate(path(0), number(field(1)))],
            ("fsync" | "fdatasync", Some(path)) => vec![DiskOperation::Sync(path)],
            ("rename", _) => vec![DiskOperation::Rename(path(0), path(1))],
            ("link", _) => vec![DiskOperation::Link(path(0), path(1))],
            ("renameat" | "renameat2", _) => {
                vec![DiskOperation::Rename(named(field(0), field(1)), named(field(2), field(3)))]
            }
            ("linkat", _) => {
                vec![DiskOperation::Link(named(field(0), field(1)), named(field(2), field(3)))]
            }
            ("unlink" | "rmdir", _) => vec![DiskOperation::Remove(path(0))],
            ("unlinkat", _) => vec![DiskOperation::Remove(named(field(0), field(1)))],
            ("mkdir", _) => vec![DiskOperation::Mkdir(path(0))],
            ("mkdirat", _) => vec![DiskOperation::Mkdir(named(field(0), field(1)))],
            ("execve", _) => {
                let mut words = arguments.split('"').skip(1).step_by(2).map(decode);
                let is_command = words.next().is_some_and(|program| program.ends_with(b"/bash"));
                if words.any(|word| word == b"steer") {
                    self.senders.insert(process);
                }
                is_command
                    .then_some(DiskOperation::Effect(OutsideEffect::Ran))
                    .into_iter()
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}
