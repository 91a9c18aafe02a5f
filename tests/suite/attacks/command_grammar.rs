//! Random command lines, from the grammar of shells and the options of programs.

/// A random number generator that gives the same numbers for the same seed.
pub(super) struct CommandRng(u64);

impl CommandRng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % most as u64).unwrap()
    }

    /// Returns true with a probability of `times` in a hundred.
    fn in_100(&mut self, times: usize) -> bool {
        self.below(100) < times
    }

    fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

/// Programs, and words that mean something to each.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("cat", &["-n", "-"]),
    ("echo", &["-e", "-n", "{PATH}"]),
    ("ls", &["-la", "-R", "--color"]),
    ("wc", &["-l", "--files0-from=a"]),
    ("head", &["-n", "1", "-c"]),
    ("tail", &["-n", "1", "+1"]),
    ("cut", &["-d", "-f1", "--output-delimiter=x"]),
    ("tr", &["a-z", "A-Z", "-d"]),
    ("basename", &["-a"]),
    ("dirname", &["-z"]),
    ("du", &["-s", "-a"]),
    ("stat", &["-c", "%n"]),
    ("seq", &["1", "3", "-s,", "-f%g"]),
    ("expr", &["1", "+", "index"]),
    ("readlink", &["-f", "-e"]),
    ("realpath", &["-s"]),
    ("sha256sum", &["-c", "--tag"]),
    ("cmp", &["-s"]),
    ("comm", &["-12", "--output-delimiter=x"]),
    ("paste", &["-s", "-d,"]),
    ("join", &["-t,", "-o", "1.1"]),
    ("nl", &["-ba"]),
    ("od", &["-c", "-An"]),
    ("fold", &["-w", "3"]),
    ("fmt", &["-w", "9"]),
    ("id", &["-u"]),
    ("uname", &["-a"]),
    ("printenv", &["PATH"]),
    ("ps", &["-e", "-o", "pid"]),
    ("true", &[]),
    ("false", &[]),
    (":", &[]),
    ("cd", &["d", "..", "-"]),
    ("pwd", &["-P"]),
    ("type", &["-a", "-p"]),
    ("pushd", &["+1", "d"]),
    ("popd", &["-n"]),
    ("dirs", &["-v"]),
    ("shift", &["1"]),
    ("exit", &["1"]),
    ("return", &["1"]),
    (
        "test",
        &["-v", "-f", "-n", "=", "-eq", "!", "(", ")", "-a", "-o", "-R", "-t", "$op", "\"$op\""],
    ),
    ("[", &["-v", "-f", "-n", "=", "-gt", "!", "-a", "-o", "]", "]", "]", "\"$op\""]),
    (
        "printf",
        &[
            "%s", "'%d\\n'", "-v", "x", "'%n'", "'%s%n'", "PATH", "'%b'", "'%(%s)T'", "'%*d'", "%",
            "\"$x\"",
        ],
    ),
    ("read", &["-r", "x", "-a", "'a[$(touch p)]'", "PATH", "-d", "-n1"]),
    ("set", &["-e", "-x", "--", "-o", "pipefail", "-k", "-a", "+e", "keyword"]),
    ("date", &["+%s", "-u", "-s", "-d", "now", "-r", "-f", "--set=now", "-Is", "010100"]),
    ("wait", &["-n", "-p", "x", "%1"]),
    ("env", &["x=1", "-i", "-u", "-C", "d", "-S", "'touch p'", "PATH=.", "ls"]),
    ("command", &["-v", "-V", "-p", "ls", "touch"]),
    ("exec", &["-a", "rm", "-c", "-l", "ls", "cat"]),
    ("builtin", &["test", "printf", "echo", "cd"]),
    ("eval", &["'ls'", "'touch p'", "\"$x\"", "'test -v \"$op\"'"]),
    ("trap", &["'ls'", "'touch p'", "EXIT", "DEBUG", "ERR", "-p", "-"]),
    ("nohup", &["ls", "touch"]),
    ("nice", &["-n", "5", "ls", "touch"]),
    ("timeout", &["1", "-k", "2", "ls", "touch"]),
    ("stdbuf", &["-oL", "-o", "L", "ls"]),
    ("setsid", &["-w", "-f", "ls"]),
    (
        "xargs",
        &[
            "-n1",
            "-I{}",
            "-I",
            "x",
            "ls",
            "cat",
            "sh",
            "-c",
            "'echo {}'",
            "-a",
            "-P2",
            "sort",
            "touch",
            "--process-slot-var=PATH",
        ],
    ),
    ("diff", &["-u", "-l", "-r", "--paginate", "-D", "x", "--to-file=a", "-o", "p"]),
    (
        "sort",
        &[
            "-n",
            "-k1,1",
            "-o",
            "p",
            "-op",
            "--output=p",
            "--outp=p",
            "-u",
            "-T",
            ".",
            "--compress-program=touch",
            "-t",
            ":",
        ],
    ),
    ("uniq", &["-c", "-", "--", "-x", "p", "-d", "-f1", "-f", "1", "--count", "+1"]),
    (
        "find",
        &[
            ".",
            "-name",
            "a",
            "-delete",
            "-fprint",
            "p",
            "-exec",
            "ls",
            "{}",
            "\\;",
            "+",
            "-type",
            "f",
            "-print0",
            "-maxdepth",
            "1",
            "-fls",
            "-ok",
            "-execdir",
            "touch",
            "!",
            "\\(",
            "\\)",
            "-o",
            "-newer",
            "-D",
            "tree",
            "-printf",
            "%p",
            "-fprintf",
        ],
    ),
    (
        "sed",
        &[
            "-n",
            "-e",
            "1p",
            "s/a/b/",
            "'s/a/b/w p'",
            "-i",
            "'1w p'",
            "-s",
            "-E",
            "--in-place",
            "s/x/y/e",
            "'1e touch p'",
            "5q",
            "$d",
            "-f",
            "-z",
            "--posix",
        ],
    ),
    ("grep", &["-r", "x", "-l", "-f", "-e", "-o", "-v", "-P"]),
    ("egrep", &["x"]),
    (
        "git",
        &[
            "status",
            "diff",
            "log",
            "show",
            "blame",
            "-C",
            "d",
            "-c",
            "core.pager=touch",
            "--no-pager",
            "-p",
            "--ext-diff",
            "--textconv",
            "--output=p",
            "-O",
            "HEAD",
            "a",
            "--",
            "branch",
            "-a",
            "tag",
            "-l",
            "v1",
            "grep",
            "-Otouch",
            "-n",
            "config",
            "--get",
            "-l",
            "user.name",
            "p.q",
            "rev-parse",
            "ls-files",
            "-m",
            "cat-file",
            "HEAD:a",
            "--filters",
            "blob",
            "stash",
            "list",
            "reflog",
            "expire",
            "describe",
            "--dirty",
            "--always",
            "remote",
            "-v",
            "add",
            "--stat",
            "--format=%G?",
            "--remerge-diff",
            "diff-index",
            "for-each-ref",
            "commit",
            "-m",
            "checkout",
            "worktree",
            "count-objects",
            "shortlog",
            "--exec-path=.",
            "-s",
            "-sb",
            "--porcelain",
            "--oneline",
        ],
    ),
    (
        "bash",
        &[
            "-c",
            "'ls'",
            "'touch p'",
            "-k",
            "-e",
            "-x",
            "-o",
            "pipefail",
            "-l",
            "-i",
            "--rcfile",
            "a",
            "-s",
            "-kc",
            "'ls a PATH=.'",
            "-ec",
            "--version",
        ],
    ),
    ("sh", &["-c", "'ls'", "'echo a'", "'[[ a > p ]]'", "'echo {a,b}'", "-e", "'ls &> p'", "-ec"]),
    ("python3", &["--version", "-c", "1"]),
    ("make", &["--version", "-f", "a"]),
    ("touch", &["p"]),
    ("rm", &["-f", "a"]),
    ("tee", &["p"]),
    ("declare", &["-i", "x='a[$(touch p)]'", "-n", "x"]),
    ("local", &["x=1"]),
    ("export", &["x=1", "PATH=."]),
    ("unset", &["x", "'a[$(touch p)]'", "PATH"]),
    ("let", &["x=1", "'a[$(touch p)]=1'"]),
    ("mapfile", &["-C", "touch", "-c1", "x"]),
    ("alias", &["ls=touch"]),
    ("source", &["a"]),
    (".", &["./a"]),
    ("hash", &["-p", "/usr/bin/touch", "ls"]),
    ("getopts", &["x", "PATH"]),
    ("sleep", &["0"]),
    (
        "tree",
        &[
            "-a",
            "-L",
            "1",
            "-Lo",
            "-P",
            "-Po",
            "-I",
            "-aIo",
            "-o",
            "-R",
            "-H",
            ".",
            "--sort",
            "--fromfile",
            "x",
        ],
    ),
    (
        "rg",
        &[
            "-n",
            "-e",
            "-f",
            "-g",
            "'*'",
            "-z",
            "--pre",
            "touch",
            "--pre=touch",
            "-j1",
            "-r",
            "x",
            "--search-zip",
            "--hostname-bin=touch",
            "--files",
            "-A",
            "1",
            "--sort",
            "path",
        ],
    ),
    ("jq", &["-n", "-r", ".", "'input'", "-f", "--arg", "x", "y", "-L", "d", "'include \"a\"; .'"]),
    ("file", &["-b", "-f", "-C", "-m", "-z", "-i", "-F", ":"]),
    ("column", &["-t", "-s", ","]),
    ("tac", &["-r", "-s", "x"]),
    ("cksum", &["-a", "md5"]),
    ("expand", &["-t", "3"]),
    ("unexpand", &["-a"]),
    ("factor", &["12"]),
    ("getconf", &["PATH", "-a", "-v", "PAGE_SIZE"]),
    ("hostname", &["x", "-f", "-F", "a"]),
    ("locale", &["-a", "-k"]),
    ("lscpu", &["-p"]),
    ("pgrep", &["-f", "-l", "x", "--signal", "9", "-F"]),
    ("rev", &[]),
    ("strings", &["-n", "2", "@a"]),
    ("tsort", &[]),
    ("df", &["-h", "--output"]),
    ("free", &["-m"]),
    ("uptime", &["-p"]),
    ("arch", &["touch", "p"]),
    ("ionice", &["-c", "3", "-c3", "-p", "1", "-t", "ls", "touch"]),
    ("taskset", &["1", "-c", "0", "-p", "ls", "touch"]),
    ("chrt", &["-b", "0", "-p", "ls", "touch"]),
    ("time", &["-p", "--", "-o", "p", "-f", "%e", "ls", "touch"]),
    ("dash", &["-c", "'ls'", "'touch p'", "-e", "-ec", "'cd e; git diff'"]),
    ("perl", &["--version", "-e", "1"]),
    ("git", &["-C", "e", "k", "k/..", "d", "diff", "log", "-p", "show", "status", "blame", "a"]),
    ("cd", &["e", "k", "-P", "k/..", "..", "--", "-"]),
    ("env", &["-C", "e", "-Ce", "--chdir=k", "git", "diff", "status", "ls"]),
    (
        "find",
        &[
            ".",
            "e",
            "-execdir",
            "-exec",
            "git",
            "diff",
            "log",
            "\\;",
            "\\;*",
            "+*",
            "{\\;,-delete}",
            "-delete",
            "{}",
            "+",
            "ls",
        ],
    ),
];

/// Words that are no option of any program.
const WORDS: &[&str] = &[
    "a",
    "b",
    "d",
    "d/f",
    "./a",
    "./d/f",
    "none",
    "''",
    "\"a b\"",
    "1",
    "0",
    "3",
    "-1",
    "--",
    "-",
    "x",
    "y",
    "op",
    "'a[$(touch p)]'",
    "\"b[\\$(>p)]\"",
    "'a[`touch p`]'",
    "'x[$(>p)0]'",
    "'$(touch p)'",
    "'[$(touch p)]=1'",
    "-v",
    "-o",
    "-x",
    "-delete",
    "-exec",
    "\\;",
    "{}",
    "+",
    "*",
    "?",
    "[ab]",
    "-*",
    "./*",
    "d/*",
    "~",
    "{a,b}",
    "{-o,p}",
    "{-v,'a[$(>p)]'}",
    "./{a,b}",
    "{1..3}",
    "$x",
    "\"$x\"",
    "${x}",
    "\"${x}\"",
    "$y",
    "\"$op\"",
    "$op",
    "$_",
    "\"$_\"",
    "$*",
    "\"$@\"",
    "$0",
    "$#",
    "$?",
    "$$",
    "$!",
    "$-",
    "$1",
    "$HOME",
    "\"$HOME/a\"",
    "$'\\x61'",
    "$\"a\"",
    "./$x",
    "./\"$x\"",
    "~/$x",
    "--output=p",
    "--output",
    "p",
    ">p",
    "2>/dev/null",
    ">/dev/null",
    "<a",
    "<<<a",
    "<<<$x",
    "2>&1",
    ">&2",
    "1>&0",
    ">/dev/stdout",
    "</dev/null",
    "&>p",
    "<>p",
    ">|p",
    "{fd}>p",
    "{PATH}<a",
    "{x}<a",
    "3<a",
    "<&3",
    "/dev/null",
    "/dev/stdin",
    "é",
    "=",
    "==",
    "x=1",
    "PATH=.",
    "x=",
    "#c",
    "\\\n",
    "\\a",
    "!",
    "[",
    "]",
    "=~",
    "@(a|b)",
    "%s",
    "-n",
    "-e",
    "-c",
    "ls",
    "touch",
    "e",
    "k",
    "k/..",
    "\\;*",
    "$[x]",
    "$[a[$(touch p)]]",
    "\"$[_]\"",
    "${#a[$(touch p)]}",
    "${!a[$(touch p)]}",
    "${!x*}",
    "@($(touch p))",
    "@(a|`touch p`)",
    "$'\\'touch p\\''",
    "\"`echo \\\"a\\\"`\"",
    "\"$(echo \"a b\")\"",
    "'\n'",
    "\"\n\"",
    "{a,b}{c,$(touch p)}",
    "{x..$y}",
];

/// Operators after the name in `${…}`.
const PARAMETERS: &[&str] = &[
    "-",
    ":-",
    "=",
    ":=",
    "+",
    ":+",
    "?",
    "#",
    "##",
    "%",
    "%%",
    "/a/",
    "//a/",
    "/",
    "^",
    "^^",
    ",",
    "@P",
    "@Q",
    "@E",
    ":0:1",
    ":",
    "[0]",
    "[$(touch p)]",
    "[@]",
    "[y]",
    ":y",
    ":y:1",
    "@",
    "@A",
];

const VARIABLES: &[&str] = &[
    "x",
    "y",
    "op",
    "z",
    "PATH",
    "IFS",
    "_",
    "HOME",
    "PS4",
    "BASH_ENV",
    "LD_PRELOAD",
    "RANDOM",
    "0",
    "1",
    "@",
    "#",
    "!x",
];

const EXPRESSIONS: &[&str] = &[
    "1+1",
    "x",
    "_",
    "x+1",
    "$x",
    "a[0]",
    "a[$(touch p)]",
    "x=1",
    "1?2:3",
    "2#10",
    "0x1f",
    "1<<2",
    "${x}",
    "$#",
    "`echo 1`",
    "y[x]",
    "x++",
    "1,2",
    "(1)",
    "$((1))",
];

/// Returns a line.
pub(super) fn line(chance: &mut CommandRng) -> String {
    let mut line = script(chance, 0);
    // Many surprises begin with an unusual value in a variable.
    if chance.in_100(35) {
        let set = assignment(chance, 1);
        let between = chance.of(&["; ", " && ", "\n"]);
        line = format!("{set}{between}{line}");
    }
    if chance.in_100(12) { mutated(&line, chance) } else { line }
}

fn script(chance: &mut CommandRng, depth: usize) -> String {
    let mut text = command(chance, depth);
    for _ in 0..chance.below(if depth == 0 { 3 } else { 2 }) {
        let between = chance.of(&["; ", " && ", " || ", " | ", "\n", " |& ", " & ", " ;"]);
        text = format!("{text}{between}{}", command(chance, depth));
    }
    text
}

#[allow(clippy::too_many_lines)] // a grammar, one rule after the other
fn command(chance: &mut CommandRng, depth: usize) -> String {
    if depth > 2 || chance.in_100(70) {
        return simple(chance, depth);
    }
    let depth = depth + 1;
    if chance.in_100(45) {
        return rarer(chance, depth);
    }
    match chance.below(16) {
        0 => format!("( {} )", script(chance, depth)),
        1 => format!("{{ {}; }}{}", script(chance, depth), redirection(chance)),
        2 => format!("if {}; then {}; fi", script(chance, depth), script(chance, depth)),
        3 => {
            let (name, word, other) =
                (chance.of(VARIABLES), word(chance, depth), word(chance, depth));
            format!("for {name} in {word} {other}; do {}; done", script(chance, depth))
        }
        4 => format!("while false; do {}; done", script(chance, depth)),
        5 => {
            format!("while read -r x; do {}; done < {}", script(chance, depth), word(chance, depth))
        }
        6 => {
            let (of, pattern) = (word(chance, depth), word(chance, depth));
            format!(
                "case {of} in {pattern}) {};; *) {};; esac",
                script(chance, depth),
                script(chance, depth)
            )
        }
        7 => format!("f() {{ {}; }}; f {}", script(chance, depth), word(chance, depth)),
        8 => format!("! {}", simple(chance, depth)),
        9 => {
            let (left, sign, right) = (
                word(chance, depth),
                chance.of(&["==", "=", "!=", "=~", "<", "-eq", "-nt", "-v", "&&", "||"]),
                word(chance, depth),
            );
            format!("[[ {left} {sign} {right} ]]")
        }
        10 => format!("(( {} ))", chance.of(EXPRESSIONS)),
        11 => format!("time {}", simple(chance, depth)),
        12 => {
            let mark = chance.of(&["E", "'E'", "\\E", "\"E\""]);
            let (program, inner) =
                (chance.of(&["cat", "bash", "sh", "read -r x", "wc -l"]), word(chance, depth));
            format!("{program} <<{mark}\n{inner}\nE\n")
        }
        13 => format!(
            "{} <<< {}",
            chance.of(&["cat", "bash", "read -r x", "wc"]),
            word(chance, depth)
        ),
        14 => {
            let wrapper = chance.of(&[
                "nohup",
                "nice",
                "timeout 2",
                "env",
                "command",
                "exec",
                "builtin",
                "xargs",
                "env -C d",
                "stdbuf -oL",
            ]);
            format!("{wrapper} {}", simple(chance, depth))
        }
        _ => {
            let inner = script(chance, depth).replace('\'', "'\\''");
            format!(
                "{} '{inner}'",
                chance.of(&["bash -c", "sh -c", "eval", "bash -ec", "bash -kc"])
            )
        }
    }
}

/// Returns a command of a rarer form.
fn rarer(chance: &mut CommandRng, depth: usize) -> String {
    match chance.below(13) {
        0 => format!("f() {{ {}; }}{}; f", script(chance, depth), redirection(chance)),
        1 => format!(
            "f() ( {} ); f; ls() {{ {}; }}; ls",
            script(chance, depth),
            script(chance, depth)
        ),
        2 => format!("function f {{ {}; }}; f", script(chance, depth)),
        3 => format!("until {}; do {}; done", simple(chance, depth), script(chance, depth)),
        4 => format!(
            "if {}; then ls; elif {}; then ls; else {}; fi",
            simple(chance, depth),
            simple(chance, depth),
            script(chance, depth)
        ),
        5 => format!("time {} {}", chance.of(&["-p", "--", "!", "-p --"]), simple(chance, depth)),
        6 => {
            // Documents whose end is hard to see, and after which the next line begins.
            let begin = chance.of(&[
                "<<E", "<<-E", "<<'E'", "<<\\E", "<<E <<F", "<<E<<-F", "<<E #", "<<E |cat",
                "<<E &&ls",
            ]);
            let body = chance.of(&[
                "a",
                "a\\",
                "a\\\\",
                "$(cat <<E\nb\nE\n)",
                "${x:-\nE\n}",
                "\"",
                "'",
                "`ls",
                "\tE",
                " E",
                "E ",
                "$x",
            ]);
            let end = chance.of(&["E", "\tE", "E\nF", "F\nE", "E\n", "E)", "\\E"]);
            format!("cat {begin}\n{body}\n{end}\n{}\nE\n", simple(chance, depth))
        }
        7 => {
            let (of, pattern) = (word(chance, depth), word(chance, depth));
            let end = chance.of(&[";;", ";&", ";;&", "\n;;"]);
            format!(
                "case {of} in ({pattern}|a) {}{end} *) ls;; esac{}",
                script(chance, depth),
                redirection(chance)
            )
        }
        8 => format!("for x in a; do {}; done{}", script(chance, depth), redirection(chance)),
        9 => format!("ls # {}\n{}", word(chance, depth), simple(chance, depth)),
        10 => format!("eval \"{}\"", simple(chance, 9).replace(['"', '`'], "")),
        11 => format!(
            "for (({}; {}; 0)); do {}; done",
            chance.of(EXPRESSIONS),
            chance.of(EXPRESSIONS),
            script(chance, depth)
        ),
        _ => format!(
            "( cd {}; {} )",
            chance.of(&["e", "k", "d", "-P k/..", "$x", "\"$HOME\"/e", "-"]),
            script(chance, depth)
        ),
    }
}

fn simple(chance: &mut CommandRng, depth: usize) -> String {
    let (name, options) = PROGRAMS[chance.below(PROGRAMS.len())];
    let mut text = String::new();
    if chance.in_100(8) {
        text = assignment(chance, depth) + " ";
    }
    text += name;
    for _ in 0..chance.below(6) {
        let next = match chance.in_100(55) && !options.is_empty() {
            true => chance.of(options).to_owned(),
            false => word(chance, depth),
        };
        text = format!("{text} {next}");
    }
    if name == "[" {
        text += " ]";
    }
    if chance.in_100(12) { text + &redirection(chance) } else { text }
}

fn assignment(chance: &mut CommandRng, depth: usize) -> String {
    let name =
        if chance.in_100(85) { chance.of(&["x", "y", "op", "a"]) } else { chance.of(VARIABLES) };
    match chance.below(10) {
        0 => format!("{name}=({} {})", word(chance, depth), word(chance, depth)),
        1 => format!("{name}=([{}]={})", word(chance, depth), word(chance, depth)),
        2 => format!("{name}=(['b[$(touch p)]']=1)"),
        3 => format!("{name}+={}", word(chance, depth)),
        4 => format!("{name}[{}]=1", word(chance, depth)),
        5 => format!("{name}=-v"),
        6 => format!("{name}='a[$(touch p)]'"),
        _ => format!("{name}={}", word(chance, depth)),
    }
}

fn redirection(chance: &mut CommandRng) -> String {
    let sign = chance.of(&[
        ">", ">>", "<", "2>", "<>", "&>", ">|", ">&", "<&", "<<<", "3<", "1<>", "0>", "{x}>",
        "{PATH}<", "{x}<",
    ]);
    let target = chance.of(&[
        "/dev/null",
        "p",
        "a",
        "/dev/stdout",
        "/dev/stderr",
        "1",
        "2",
        "0",
        "-",
        "$x",
        "/dev/fd/0",
        "/dev/zero",
        "/dev/tcp/127.0.0.1/9",
        "d/q",
    ]);
    format!(" {sign}{target}")
}

fn word(chance: &mut CommandRng, depth: usize) -> String {
    if depth > 3 || chance.in_100(75) {
        return chance.of(WORDS).to_owned();
    }
    let depth = depth + 1;
    let quoted = |chance: &mut CommandRng, text: String| {
        if chance.in_100(40) { format!("\"{text}\"") } else { text }
    };
    match chance.below(9) {
        0 | 1 => {
            let text = format!("$({})", script(chance, depth));
            quoted(chance, text)
        }
        2 => {
            let text = format!("`{}`", simple(chance, 9).replace('`', ""));
            quoted(chance, text)
        }
        3 => format!(
            "{}({})",
            chance.of(&["<", "<", "<", "<", "<", "<", "<", "<", "<", ">"]),
            script(chance, depth)
        ),
        4..=6 => {
            let (name, how, inner) =
                (chance.of(VARIABLES), chance.of(PARAMETERS), word(chance, depth));
            let text = format!("${{{name}{how}{inner}}}");
            quoted(chance, text)
        }
        7 => {
            let text = format!("$(({}))", chance.of(EXPRESSIONS));
            quoted(chance, text)
        }
        _ => format!("{}{}", word(chance, depth), word(chance, depth)),
    }
}

/// Returns a text with some of its characters changed.
fn mutated(text: &str, chance: &mut CommandRng) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let odd: Vec<char> = "'\"`$(){}[]<>|&;\\\n#!*?~=-+%^@_: ,\t\r\u{b}\u{a0}".chars().collect();
    for _ in 0..=chance.below(3) {
        if chars.is_empty() {
            break;
        }
        let at = chance.below(chars.len());
        match chance.below(4) {
            0 => drop(chars.remove(at)),
            1 => chars.insert(at, odd[chance.below(odd.len())]),
            2 => chars[at] = odd[chance.below(odd.len())],
            _ => chars.insert(at, chars[at]),
        }
    }
    chars.into_iter().collect()
}
