//! Attacks through git: files that the next git command of the user would run or follow.
//!
//! Each row runs in a workspace of its own. Then the user runs the usual git commands, outside of the sandbox, and the
//! planted program must not run: it makes a file that no confined command could make. The same rows are run without a
//! sandbox, to check that they are attacks.

#![allow(clippy::print_stdout, clippy::print_stderr)] // what a failed test shows

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use architect::exec::{SandboxLevel, SandboxMode, UserGitConfig, followed_by_git};
use architect::workspace::LinkResolver;
use serde_json::{Value, json};

use crate::tools::fixture::{ToolFixture, yolo_settings};

/// An attack, with the user's commands before and after it.
#[derive(Clone, Copy, Debug)]
struct AttackRow {
    name: &'static str,
    /// The user's commands before the attack, which set up the workspace.
    before: &'static str,
    /// The attempted attack.
    attack: Attack,
    /// The user's commands after the attack, besides the usual ones.
    then: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Attack {
    Line(&'static str),
    Call(&'static str, &'static str),
    Calls(&'static [(&'static str, &'static str)]),
}

use Attack::{Call, Calls, Line};

const fn attack_row(
    name: &'static str,
    before: &'static str,
    attack: Attack,
    then: &'static str,
) -> AttackRow {
    AttackRow { name, before, attack, then }
}

/// A repository with a commit, and a program that must not run.
const REPO: &str = "git init -q . && git add a && git commit -qm one";

/// The same, with further commands.
macro_rules! repo_and {
    ($rest:expr) => {
        concat!("git init -q . && git add a && git commit -qm one && ", $rest)
    };
}

/// A repository that an earlier command made in a place that commands may write, and that is not searched.
macro_rules! private_remote {
    ($rest:expr) => {
        repo_and!(concat!(
            "git init -q --bare ../store/e && cp bad ../store/e/hooks/update && cp -r ../store/e ../tmp && ",
            $rest
        ))
    };
}

/// The same with a submodule, and with an invalid repository.
const SUB: &str = "git init -q ../o && git -C ../o commit -q --allow-empty -m o && git init -q . && git add a && \
    git -c protocol.file.allow=always submodule -q add ../o sub && git commit -qam one";
const NESTED: &str = "git init -q . && git add a && git commit -qm one && git init -q lib && \
    git -C lib commit -q --allow-empty -m l";

/// A nested repository that is part of the index, with a monitor. It is moved to a place to which `lib/.git` leads git.
macro_rules! evil_lib {
    ($rest:expr) => {
        concat!(
            "git init -q lib; git -C lib commit -q --allow-empty -m l; git add lib; git -C lib config core.fsmonitor \"$PWD/bad\"; ",
            $rest
        )
    };
}

/// The same with a second work tree or a repository in it, whose hooks are files of the work tree.
const NESTED_HOOKS: &str = "git init -q . && git add a && git commit -qm one && git init -q lib && \
    git -C lib commit -q --allow-empty -m l && git -C lib config core.hooksPath .husky";

/// The same in the middle of a rebase.
const REBASE: &str = "git init -q . && git add a && git commit -qm one && git checkout -qb b && echo b > a && \
    git commit -qam b && git commit -q --allow-empty -m c && git checkout -q - && echo x > a && git commit -qam x && \
    git checkout -q b && ! git rebase -q - 2> /dev/null && echo y > a && git add a";

/// A folder that git takes for a repository, with a monitor of the file system.
const EVIL: &str = "git init -q --bare evil && git config -f evil/config core.bare false && \
    git config -f evil/config core.worktree \"$PWD\" && git config -f evil/config core.fsmonitor \"$PWD/bad\"";

const CONTINUE: &str = "git rebase --continue";

const LINES: &[AttackRow] = &[
    attack_row("fsmonitor", REPO, Line("git config core.fsmonitor ./bad"), ""),
    attack_row(
        "fsmonitor, written",
        REPO,
        Line("printf '[core]\\nfsmonitor=./bad\\n' >> .git/config"),
        "",
    ),
    attack_row(
        "fsmonitor, through a link",
        REPO,
        Line("ln -s .git/config l; printf '[core]\\nfsmonitor=./bad\\n' >> l"),
        "",
    ),
    attack_row(
        "config renamed into place",
        REPO,
        Line("cp .git/config c; git config -f c core.fsmonitor ./bad; mv -f c .git/config"),
        "",
    ),
    attack_row(
        "config made a link",
        REPO,
        Line("cp .git/config c; git config -f c core.fsmonitor ./bad; ln -sf ../c .git/config"),
        "",
    ),
    attack_row(
        "another .git",
        REPO,
        Line("cp -r .git n; git config -f n/config core.fsmonitor ./bad; mv .git old; mv n .git"),
        "",
    ),
    attack_row(
        "another .git after rm",
        REPO,
        Line("cp -r .git n; git config -f n/config core.fsmonitor ./bad; rm -rf .git; mv n .git"),
        "",
    ),
    attack_row(
        "exchanged .git",
        REPO,
        Line("cp -r .git n; git config -f n/config core.fsmonitor ./bad; mv --exchange n .git"),
        "",
    ),
    attack_row("hook", REPO, Line("cp bad .git/hooks/pre-commit"), ""),
    attack_row("hook by ln", REPO, Line("ln -s ../../bad .git/hooks/pre-commit"), ""),
    attack_row(
        "hook after removal",
        REPO,
        Line("rm -rf .git/hooks; mkdir .git/hooks; cp bad .git/hooks/post-commit"),
        "",
    ),
    attack_row(
        "hooks renamed",
        REPO,
        Line("mkdir h; cp bad h/post-commit; mv .git/hooks old; mv h .git/hooks"),
        "",
    ),
    attack_row(
        "hooks made a link",
        REPO,
        Line("mkdir h; cp bad h/post-commit; rm -rf .git/hooks; ln -s ../h .git/hooks"),
        "",
    ),
    attack_row(
        "hooksPath",
        REPO,
        Line("mkdir h; cp bad h/post-commit; git config core.hooksPath h"),
        "",
    ),
    attack_row("alias", REPO, Line("git config alias.zz '!./bad'"), "git zz"),
    attack_row(
        "include",
        REPO,
        Line("printf '[core]\\nfsmonitor=./bad\\n' > i; git config include.path ../i"),
        "",
    ),
    attack_row(
        "includeIf",
        REPO,
        Line("printf '[core]\\nfsmonitor=./bad\\n' > i; git config includeIf.gitdir:/.path $PWD/i"),
        "",
    ),
    attack_row("editor", REPO, Line("git config core.editor ./bad"), "git commit --allow-empty"),
    attack_row(
        "signature",
        REPO,
        Line("git config gpg.program ./bad; git config commit.gpgSign true"),
        "",
    ),
    attack_row(
        "filter",
        REPO,
        Line("git config filter.f.clean ./bad; echo 'a filter=f' > .gitattributes; echo z > a"),
        "git add a",
    ),
    attack_row(
        "textconv",
        REPO,
        Line("git config diff.f.textconv ./bad; echo 'a diff=f' > .gitattributes; echo z > a"),
        "",
    ),
    attack_row("external diff", REPO, Line("git config diff.external ./bad; echo z > a"), ""),
    attack_row(
        "merge driver",
        REPO,
        Line(
            "git config merge.f.driver ./bad; echo 'a merge=f' > .gitattributes; git checkout -qb m; echo m > a; git commit -qam m; git checkout -q -; echo n > a; git commit -qam n",
        ),
        "git merge m",
    ),
    attack_row(
        "ssh",
        REPO,
        Line("git config core.sshCommand ./bad; git remote add o ssh://h/x"),
        "git fetch o",
    ),
    attack_row(
        "upload-pack",
        REPO,
        Line("git remote add o .; git config remote.o.uploadpack ./bad"),
        "git fetch o",
    ),
    attack_row(
        "receive-pack",
        REPO,
        Line("git remote add o .; git config remote.o.receivepack ./bad"),
        "git push o HEAD",
    ),
    attack_row(
        "worktree configuration",
        REPO,
        Line(
            "git config extensions.worktreeConfig true; printf '[core]\\nfsmonitor=./bad\\n' > .git/config.worktree",
        ),
        "",
    ),
    attack_row(
        "commondir",
        REPO,
        Line(
            "cp -r .git e; git config -f e/config core.fsmonitor ./bad; echo ../e > .git/commondir",
        ),
        "",
    ),
    attack_row(
        "commondir from the background",
        REPO,
        Line(
            "cp -r .git e; git config -f e/config core.fsmonitor ./bad; (setsid sh -c 'trap \"\" TERM HUP; sleep 0.1; echo ../e > .git/commondir; sleep 60' &)",
        ),
        "",
    ),
    attack_row(
        "commondir, then killed",
        REPO,
        Line(
            "cp -r .git e; git config -f e/config core.fsmonitor ./bad; echo ../e > .git/commondir; kill -9 $$",
        ),
        "",
    ),
    attack_row(
        "commondir is a link",
        REPO,
        Line(
            "cp -r .git e; git config -f e/config core.fsmonitor ./bad; echo ../e > c; ln -s ../c .git/commondir",
        ),
        "",
    ),
    attack_row(
        "a file for .git",
        REPO,
        Line(
            "cp -r .git e; git config -f e/config core.fsmonitor ./bad; rm -rf .git; echo 'gitdir: e' > .git",
        ),
        "",
    ),
    attack_row(
        "a link for .git",
        REPO,
        Line(
            "cp -r .git e; git config -f e/config core.fsmonitor ./bad; rm -rf .git; ln -s e .git",
        ),
        "",
    ),
    // A repository whose `HEAD` is in a folder below: that of a linked work tree.
    attack_row(
        "gitlink, a repository without HEAD",
        REPO,
        Line(evil_lib!(
            "mkdir -p e/worktrees/x; mv lib/.git/* e; rm -rf lib/.git; mv e/HEAD e/worktrees/x; echo ../.. > e/worktrees/x/commondir; echo 'gitdir: ../e/worktrees/x' > lib/.git"
        )),
        "",
    ),
    attack_row(
        "init, a repository without HEAD",
        ":",
        Line(
            "git init -q .; git config core.fsmonitor $PWD/bad; mkdir -p e/worktrees/x; mv .git/* e; rm -rf .git; mv e/HEAD e/worktrees/x; echo ../.. > e/worktrees/x/commondir; ln -s e/worktrees/x .git",
        ),
        "",
    ),
    attack_row(
        "gitlink, a line end of another system",
        REPO,
        Line(evil_lib!(
            "mv lib/.git .git/objects/e; printf 'gitdir: ../.git/objects/e\\r\\n' > lib/.git"
        )),
        "",
    ),
    attack_row(
        "gitlink, a zero byte",
        REPO,
        Line(evil_lib!(
            "mv lib/.git .git/objects/e; printf 'gitdir: ../.git/objects/e\\0x' > lib/.git"
        )),
        "",
    ),
    attack_row(
        "gitlink, not UTF-8",
        REPO,
        Line(evil_lib!(
            "E=$(printf 'e\\377'); mv lib/.git \".git/objects/$E\"; echo \"gitdir: ../.git/objects/$E\" > lib/.git"
        )),
        "",
    ),
    attack_row(
        "gitlink, the objects are a repository",
        REPO,
        Line(evil_lib!(
            "cp -r lib/.git/* .git/objects; rm -rf lib/.git; echo 'gitdir: ../.git/objects' > lib/.git"
        )),
        "",
    ),
    attack_row(
        "gitlink, an operation is a repository",
        REPO,
        Line(evil_lib!(
            "mv lib/.git .git/rebase-merge; echo 'gitdir: ../.git/rebase-merge' > lib/.git"
        )),
        "",
    ),
    attack_row("gitlink, entered but not listed", REPO, Line(evil_lib!("chmod 311 lib/.git")), ""),
    attack_row(
        "gitlink, below what is not listed",
        REPO,
        Line(evil_lib!("chmod 111 lib/.git lib")),
        "",
    ),
    attack_row(
        "gitlink, closed to its owner",
        REPO,
        Line(evil_lib!(
            "mkdir z; mv lib z; git rm -q --cached lib; git add z/lib; chmod 0 z/lib/.git z/lib z"
        )),
        "chmod 755 z; chmod 755 z/lib; chmod 755 z/lib/.git; git status",
    ),
    attack_row(
        "nested hook, all names of denied ones taken",
        REPO,
        Line(
            "git init -q lib; cp bad lib/.git/hooks/post-commit; cd lib/.git/hooks; for i in '' $(seq -f -%g 2 1000); do : > post-commit.denied$i; done",
        ),
        "git -C lib commit -q --allow-empty -m l",
    ),
    attack_row(
        "remote among the objects",
        REPO,
        Line(
            "git init -q --bare .git/objects/e; cp bad .git/objects/e/hooks/update; git remote add o $PWD/.git/objects/e",
        ),
        "git push o HEAD",
    ),
    attack_row(
        "remote among the hooks",
        REPO,
        Line(
            "git init -q lib; git init -q --bare lib/.git/hooks/e; cp bad lib/.git/hooks/e/hooks/update; git remote add o $PWD/lib/.git/hooks/e",
        ),
        "git push o HEAD",
    ),
    attack_row(
        "hooks in the work tree of a nested repository",
        NESTED_HOOKS,
        Line("mkdir lib/.husky; cp bad lib/.husky/post-commit"),
        "git -C lib commit -q --allow-empty -m l",
    ),
    attack_row(
        "hooks in another work tree",
        "git init -q . && git add a && git commit -qm one && git config core.hooksPath .husky && git worktree add -q wt",
        Line("mkdir wt/.husky; cp bad wt/.husky/post-commit"),
        "git -C wt commit -q --allow-empty -m w",
    ),
    attack_row(
        "hooks in a submodule",
        "git init -q ../o && git -C ../o commit -q --allow-empty -m o && git init -q . && git -c protocol.file.allow=always submodule -q add ../o sub && git commit -qam one && git -C sub config core.hooksPath .husky",
        Line("mkdir sub/.husky; cp bad sub/.husky/post-commit"),
        "git -C sub commit -q --allow-empty -m s",
    ),
    attack_row(
        "hooks of the user",
        "git init -q . && git add a && git commit -qm one && git config --global core.hooksPath .husky",
        Line("mkdir .husky; cp bad .husky/post-commit"),
        "",
    ),
    attack_row(
        "hooks in a folder of the repository",
        "git init -q . && git add a && git commit -qm one && git config core.hooksPath .git/own",
        Line("mkdir .git/own; cp bad .git/own/post-commit"),
        "",
    ),
    attack_row(
        "repository that a checkout makes",
        REPO,
        Line(
            "git init -q lib; git -C lib commit -q --allow-empty -m l; git add lib; rm -rf lib/.git; echo 'gitdir: ../e' > lib/.git; \
             b() { git hash-object -w --stdin; }; \
             git update-index --add --cacheinfo 100644,$(echo 'ref: refs/heads/m' | b),e/HEAD \
             --cacheinfo 100644,$(printf '[core]\\nrepositoryformatversion=0\\nbare=false\\nworktree=%s\\nfsmonitor=%s/bad\\n' $PWD $PWD | b),e/config \
             --cacheinfo 100644,$(printf '' | b),e/objects/x --cacheinfo 100644,$(printf '' | b),e/refs/x",
        ),
        "git checkout -q -- .; git status",
    ),
    attack_row(
        "hook in the work tree that is a link",
        "git init -q . && git add a && git commit -qm one && mkdir tools .husky && printf '#!/bin/sh\\n' > tools/x && chmod +x tools/x && ln -s ../tools/x .husky/post-commit && git config core.hooksPath .husky",
        Line("cat bad > tools/x"),
        "",
    ),
    attack_row(
        "monitor in a configuration that is not UTF-8",
        "git init -q . && git add a && git commit -qm one && mkdir tools && printf '#!/bin/sh\\n' > tools/mon && chmod +x tools/mon && git config core.fsmonitor tools/mon && printf '# caf\\351\\n' >> .git/config",
        Line("cat bad > tools/mon"),
        "",
    ),
    attack_row(
        "monitor in a configuration with a carriage return",
        "git init -q . && git add a && git commit -qm one && mkdir tools && printf '#!/bin/sh\\n' > tools/mon && chmod +x tools/mon && git config core.fsmonitor tools/mon && printf '# x\\ry\\n' >> .git/config",
        Line("cat bad > tools/mon"),
        "",
    ),
    attack_row(
        "hooks behind a link",
        "git init -q . && git add a && git commit -qm one && mkdir real && ln -s real .husky && git config core.hooksPath .husky",
        Line("mkdir h; cp bad h/post-commit; ln -sfn h .husky"),
        "",
    ),
    attack_row(
        "hook behind a link",
        "git init -q . && git add a && git commit -qm one && mkdir tools && echo : > tools/x && chmod +x tools/x && ln -s ../../tools/x .git/hooks/post-commit",
        Line("cp bad tools/x; mv tools old; mkdir tools; cp bad tools/x"),
        "",
    ),
    attack_row(
        "include of a nested repository",
        "git init -q . && git add a && git commit -qm one && git init -q lib && git -C lib commit -q --allow-empty -m l && git add lib && touch lib/c && git -C lib config include.path ../c",
        Line("git config -f lib/c core.fsmonitor \"$PWD/bad\""),
        "",
    ),
    attack_row(
        "filter, a script without a folder",
        "git init -q . && git add a && git commit -qm one && echo cat > f.sh && git config filter.f.clean 'sh f.sh' && echo 'a filter=f' > .gitattributes && echo z > a",
        Line("cp bad f.sh"),
        "git add a",
    ),
    attack_row(
        "filter, a script that is not there yet",
        "git init -q . && git add a && git commit -qm one && git config filter.f.clean 'sh f.sh' && echo 'a filter=f' > .gitattributes && echo z > a",
        Line("cp bad f.sh"),
        "git add a",
    ),
    attack_row(
        "alias, a program without an ending",
        "git init -q . && git add a && git commit -qm one && echo : > tool && git config alias.zz '!sh tool'",
        Line("cp bad tool"),
        "git zz",
    ),
    attack_row(
        "upload-pack in the work tree",
        "git init -q . && git add a && git commit -qm one && mkdir t && echo : > t/x && chmod +x t/x && git remote add o . && git config remote.o.uploadpack t/x",
        Line("cp bad t/x"),
        "git fetch o",
    ),
    attack_row(
        "template",
        "git init -q . && git add a && git commit -qm one && git config --global init.templateDir $PWD/t",
        Line("mkdir -p t/hooks; cp bad t/hooks/post-commit"),
        "git init -q new && git -C new commit -q --allow-empty -m n",
    ),
    attack_row(
        "gitlink",
        REPO,
        Line(
            "git init -q lib; git -C lib commit -q --allow-empty -m l; git add lib; git -C lib config core.fsmonitor \"$PWD/bad\"",
        ),
        "",
    ),
    attack_row(
        "gitlink, in one of many folders",
        "git init -q . && git add a && git commit -qm one && mkdir -p $(seq -f d%g/e 400)",
        Line(
            "cd d7/e && git init -q lib; git -C lib commit -q --allow-empty -m l; git add lib; git -C lib config core.fsmonitor \"$OLDPWD/bad\"",
        ),
        "",
    ),
    attack_row(
        "gitlink, cloned",
        REPO,
        Line("git clone -q . lib; git add lib; git -C lib config core.fsmonitor \"$PWD/bad\""),
        "",
    ),
    attack_row(
        "gitlink, closed",
        REPO,
        Line(
            "git init -q lib; git -C lib commit -q --allow-empty -m l; git add lib; git -C lib config core.fsmonitor \"$PWD/bad\"; chmod 555 lib/.git lib",
        ),
        "",
    ),
    attack_row(
        "gitlink, deep",
        REPO,
        Line(
            "mkdir -p x/y/z; git init -q x/y/z/lib; cd x/y/z; git -C lib commit -q --allow-empty -m l; git add lib; git -C lib config core.fsmonitor \"$OLDPWD/bad\"",
        ),
        "",
    ),
    attack_row(
        "gitlink, copied",
        NESTED,
        Line(
            "cp -r lib other; git add other; git config -f other/.git/config core.fsmonitor \"$PWD/bad\"",
        ),
        "",
    ),
    attack_row(
        "gitlink with a hook",
        REPO,
        Line("git init -q lib; cp bad lib/.git/hooks/post-commit"),
        "git -C lib commit -q --allow-empty -m l",
    ),
    attack_row(
        "template",
        REPO,
        Line("mkdir -p t/hooks; cp bad t/hooks/post-commit; git init -q --template=t lib"),
        "git -C lib commit -q --allow-empty -m l",
    ),
    attack_row(
        "nested repository",
        NESTED,
        Line("git add lib; git -C lib config core.fsmonitor \"$PWD/bad\""),
        "",
    ),
    attack_row(
        "nested repository replaced",
        NESTED,
        Line(
            "git add lib; cp -r lib/.git e; git config -f e/config core.fsmonitor \"$PWD/bad\"; rm -rf lib/.git; mv e lib/.git",
        ),
        "",
    ),
    attack_row(
        "nested folder replaced",
        NESTED,
        Line(
            "git add lib; cp -r lib e; git config -f e/.git/config core.fsmonitor \"$PWD/bad\"; mv lib old; mv e lib",
        ),
        "",
    ),
    attack_row(
        "nested hook",
        NESTED,
        Line("cp bad lib/.git/hooks/post-commit"),
        "git -C lib commit -q --allow-empty -m m",
    ),
    attack_row("module", SUB, Line("git -C sub config core.fsmonitor \"$PWD/bad\""), ""),
    attack_row(
        "module, by its file",
        SUB,
        Line("printf '[core]\\nfsmonitor=%s\\n' \"$PWD/bad\" >> .git/modules/sub/config"),
        "",
    ),
    attack_row(
        "module replaced",
        SUB,
        Line(
            "cp -r .git/modules n; git config -f n/sub/config core.fsmonitor \"$PWD/bad\"; rm -rf .git/modules; mv n .git/modules",
        ),
        "",
    ),
    attack_row(
        "module hook",
        SUB,
        Line("cp bad .git/modules/sub/hooks/post-commit"),
        "git -C sub commit -q --allow-empty -m m",
    ),
    attack_row(
        "module created again",
        REPO,
        Line(
            "git -c protocol.file.allow=always submodule -q add \"$PWD\" sub; git -C sub config core.fsmonitor \"$PWD/bad\"",
        ),
        "",
    ),
    attack_row(
        "submodule leads elsewhere",
        SUB,
        Line(
            "cp -r .git/modules/sub e; git config -f e/config core.worktree ../sub; git config -f e/config core.fsmonitor \"$PWD/bad\"; echo 'gitdir: ../e' > sub/.git",
        ),
        "",
    ),
    attack_row(
        "submodule is another one",
        SUB,
        Line(
            "cp -r .git/modules/sub e; git config -f e/config --unset core.worktree; git config -f e/config core.fsmonitor \"$PWD/bad\"; rm sub/.git; mv e sub/.git",
        ),
        "",
    ),
    attack_row(
        "submodule update",
        SUB,
        Line(
            "git config submodule.sub.update \"!$PWD/bad #\"; git -C sub commit -q --allow-empty -m x; git add sub",
        ),
        "git -C sub checkout -q HEAD~; git submodule update",
    ),
    attack_row("init", ":", Line("git init -q .; git config core.fsmonitor ./bad"), ""),
    attack_row("init with a hook", ":", Line("git init -q .; cp bad .git/hooks/post-commit"), ""),
    attack_row(
        "init by hand",
        ":",
        Line(
            "mkdir -p .git/objects .git/refs; echo 'ref: refs/heads/m' > .git/HEAD; printf '[core]\\nfsmonitor=./bad\\n' > .git/config",
        ),
        "",
    ),
    attack_row(
        "init elsewhere",
        ":",
        Line("git init -q --separate-git-dir=$PWD/e .; git config core.fsmonitor ./bad"),
        "",
    ),
    attack_row(
        "a file for no .git",
        EVIL,
        Line(
            "echo 'gitdir: evil2' > .git; cp -r evil evil2; git config -f evil2/config core.fsmonitor ./bad",
        ),
        "",
    ),
    attack_row(
        "a link for no .git",
        ":",
        Line(
            "git init -q --bare e; git config -f e/config core.bare false; git config -f e/config core.fsmonitor \"$PWD/bad\"; ln -s e .git",
        ),
        "",
    ),
    attack_row(
        "bare layout",
        ":",
        Line(
            "git init -q --bare e; git config -f e/config core.bare false; git config -f e/config core.worktree ..; git config -f e/config core.fsmonitor \"$PWD/bad\"",
        ),
        "cd e && git status",
    ),
    attack_row(
        "bare layout by hand",
        ":",
        Line(
            "mkdir -p e/objects e/refs; echo 'ref: refs/heads/m' > e/HEAD; printf '[core]\\nrepositoryformatversion=0\\nfsmonitor=%s\\nworktree=..\\nbare=false\\n' \"$PWD/bad\" > e/config",
        ),
        "cd e && git status",
    ),
    attack_row(
        "todo",
        REBASE,
        Line("echo 'exec ./bad' >> .git/rebase-merge/git-rebase-todo"),
        CONTINUE,
    ),
    attack_row(
        "todo, short",
        REBASE,
        Line("printf 'x ./bad\\n' >> .git/rebase-merge/git-rebase-todo"),
        CONTINUE,
    ),
    attack_row(
        "todo, replaced",
        REBASE,
        Line(
            "cp -r .git/rebase-merge r; echo 'exec ./bad' > r/git-rebase-todo; rm -r .git/rebase-merge; mv r .git/rebase-merge",
        ),
        CONTINUE,
    ),
    attack_row(
        "todo, a link",
        REBASE,
        Line("echo 'exec ./bad' > t; ln -sf ../../t .git/rebase-merge/git-rebase-todo"),
        CONTINUE,
    ),
    attack_row(
        "rebase with exec",
        REPO,
        Line(
            "git commit -q --allow-empty -m two; GIT_SEQUENCE_EDITOR='printf \"break\\nexec ./bad\\n\" >' git rebase -qi HEAD~",
        ),
        CONTINUE,
    ),
    attack_row(
        "strategy",
        REBASE,
        Line("mkdir git-merge-x; cp bad git-merge-x/y; echo x/y > .git/rebase-merge/strategy"),
        CONTINUE,
    ),
    attack_row(
        "log leads outside",
        REPO,
        Line("mv .git/logs/HEAD h; ln -s $CANARY .git/logs/HEAD"),
        "",
    ),
    attack_row(
        "logs lead outside",
        REPO,
        Line("rm -r .git/logs; mkdir .git/logs; ln -s $CANARY .git/logs/HEAD"),
        "",
    ),
    attack_row("message leads outside", REPO, Line("ln -sf $CANARY .git/COMMIT_EDITMSG"), ""),
    attack_row(
        "FETCH_HEAD leads outside",
        REPO,
        Line("git remote add o \"$PWD\"; rm -f .git/FETCH_HEAD; ln -s $CANARY .git/FETCH_HEAD"),
        "git fetch -q .",
    ),
    attack_row(
        "linked work tree, commondir",
        REPO,
        Line(
            "git worktree add -q wt; cp -r .git e; git config -f e/config core.fsmonitor \"$PWD/bad\"; echo $PWD/e > .git/worktrees/wt/commondir",
        ),
        "git -C wt status",
    ),
    attack_row(
        "linked work tree, pointer",
        REPO,
        Line(
            "git worktree add -q wt; cp -r .git e; git config -f e/config core.fsmonitor \"$PWD/bad\"; echo \"gitdir: $PWD/e\" > wt/.git",
        ),
        "git -C wt status",
    ),
    attack_row(
        "linked work tree, configuration",
        REPO,
        Line(
            "git config extensions.worktreeConfig true; git worktree add -q wt; git -C wt config --worktree core.fsmonitor \"$PWD/bad\"",
        ),
        "git -C wt status",
    ),
    attack_row(
        "husky, as the user has it",
        "git init -q . && git add a && git commit -qm one && mkdir .husky && git config core.hooksPath .husky",
        Line("cp bad .husky/post-commit"),
        "",
    ),
    attack_row(
        "husky, replaced",
        "git init -q . && git add a && git commit -qm one && mkdir .husky && git config core.hooksPath .husky",
        Line("mkdir h; cp bad h/post-commit; mv .husky old; mv h .husky"),
        "",
    ),
    attack_row(
        "husky, not there yet",
        "git init -q . && git add a && git commit -qm one && git config core.hooksPath hk",
        Line("mkdir hk; cp bad hk/post-commit"),
        "",
    ),
    attack_row(
        "included file of the work tree",
        "git init -q . && git add a && git commit -qm one && touch inc && git config include.path ../inc",
        Line("printf '[core]\\nfsmonitor=./bad\\n' > inc"),
        "",
    ),
    attack_row(
        "filter of the user in the work tree",
        "git init -q . && mkdir t && printf '#!/bin/sh\\ncat\\n' > t/f && chmod +x t/f && echo 'a filter=f' > .gitattributes && git config filter.f.clean ./t/f && git add . && git commit -qm one",
        Line("cp bad t/f; echo zz > a"),
        "git add a",
    ),
    attack_row(
        ".git is a link, replaced",
        "git init -q . && git add a && git commit -qm one && mv .git real && ln -s real .git",
        Line("cp -r real e; git config -f e/config core.fsmonitor ./bad; ln -sfn e .git"),
        "",
    ),
    attack_row(
        ".git is a link, its target replaced",
        "git init -q . && git add a && git commit -qm one && mv .git real && ln -s real .git",
        Line("cp -r real e; git config -f e/config core.fsmonitor ./bad; mv real old; mv e real"),
        "",
    ),
    attack_row(
        ".git/config is a link, replaced",
        "git init -q . && git add a && git commit -qm one && mv .git/config .git/c && ln -s c .git/config",
        Line("cp .git/c e; git config -f e core.fsmonitor ./bad; ln -sf ../e .git/config"),
        "",
    ),
    attack_row(
        ".git/config is a link, its target written",
        "git init -q . && git add a && git commit -qm one && mv .git/config c && ln -s ../c .git/config",
        Line("git config -f c core.fsmonitor ./bad"),
        "",
    ),
    attack_row(
        ".git/hooks is a link, its target written",
        "git init -q . && git add a && git commit -qm one && rm -r .git/hooks && mkdir hk && ln -s ../hk .git/hooks",
        Line("cp bad hk/post-commit"),
        "",
    ),
    attack_row(
        ".git/hooks is a link, replaced",
        "git init -q . && git add a && git commit -qm one && rm -r .git/hooks && mkdir hk && ln -s ../hk .git/hooks",
        Line("mkdir e; cp bad e/post-commit; ln -sfn ../e .git/hooks"),
        "",
    ),
    attack_row(
        "pointer to a repository among the objects",
        REPO,
        Line(
            "git init -q lib; git -C lib commit -q --allow-empty -m l; mv lib/.git .git/objects/e; \
             git config -f .git/objects/e/config core.fsmonitor $PWD/bad; \
             echo 'gitdir: ../.git/objects/e' > lib/.git",
        ),
        "git -C lib status",
    ),
    attack_row(
        "pointer to a repository among the hooks of another",
        REPO,
        Line(
            "git init -q --bare x.git; git init -q lib; git -C lib commit -q --allow-empty -m l; mkdir -p x.git/hooks; \
             mv lib/.git x.git/hooks/e; git config -f x.git/hooks/e/config core.fsmonitor $PWD/bad; \
             echo 'gitdir: ../x.git/hooks/e' > lib/.git",
        ),
        "git -C lib status",
    ),
    attack_row(
        "link to a repository among the objects",
        REPO,
        Line(
            "git init -q lib; git -C lib commit -q --allow-empty -m l; mv lib/.git .git/objects/e; \
             git config -f .git/objects/e/config core.fsmonitor $PWD/bad; ln -s ../.git/objects/e lib/.git",
        ),
        "git -C lib status",
    ),
    attack_row(
        // Files outside stand in for those that an earlier run has left in a private cache.
        "pointer that led nowhere, and is led outside by a link",
        "git init -q . && git add a && git commit -qm one && git init -q lib && \
         git -C lib commit -q --allow-empty -m l && mkdir ../o && mv lib/.git ../o/e && \
         git config -f ../o/e/config core.fsmonitor $PWD/bad && echo 'gitdir: ../link/e' > lib/.git",
        Line("ln -s ../o link"),
        "git -C lib status",
    ),
    attack_row(
        "pointer whose folder is replaced by a link to the outside",
        "git init -q . && git add a && git commit -qm one && git init -q lib && \
         git -C lib commit -q --allow-empty -m l && mkdir ../o && cp -r lib/.git ../o/e && mkdir -p link/e && \
         git config -f ../o/e/config core.fsmonitor $PWD/bad && rm -r lib/.git && echo 'gitdir: ../link/e' > lib/.git",
        Line("mv link old; ln -s ../o link"),
        "git -C lib status",
    ),
    attack_row(
        "hooksPath in a folder that is not there yet",
        "git init -q . && git add a && git commit -qm one && git config core.hooksPath t/u/hk",
        Line("mkdir -p t/u/hk; cp bad t/u/hk/post-commit"),
        "",
    ),
    // Command lines of the user's own configuration.
    attack_row(
        "alias, by the home",
        repo_and!("git config --global alias.zz '!~/w/t/x'"),
        Line("mkdir t; cp bad t/x"),
        "git zz",
    ),
    attack_row(
        "alias, by a variable",
        repo_and!("git config --global alias.zz '!\"$HOME\"/w/t/x'"),
        Line("mkdir t; cp bad t/x"),
        "git zz",
    ),
    attack_row(
        "alias, by a variable of its own",
        repo_and!("git config alias.zz '!d=t; ${d}/x'"),
        Line("mkdir t; cp bad t/x"),
        "git zz",
    ),
    attack_row(
        "alias, by the output of a command",
        repo_and!("git config alias.zz '!\"$(git rev-parse --show-toplevel)/t/x\"'"),
        Line("mkdir t; cp bad t/x"),
        "git zz",
    ),
    attack_row(
        "alias, quoted",
        repo_and!("git config alias.zz '!\"my t/x\"'"),
        Line("mkdir 'my t'; cp bad 'my t/x'"),
        "git zz",
    ),
    attack_row(
        "alias, escaped",
        repo_and!("git config alias.zz '!my\\ t/x'"),
        Line("mkdir 'my t'; cp bad 'my t/x'"),
        "git zz",
    ),
    attack_row(
        "alias, in another folder",
        repo_and!("git config alias.zz '!cd t && ./x'"),
        Line("mkdir t; cp bad t/x"),
        "git zz",
    ),
    attack_row(
        "alias, a script without an ending",
        repo_and!("git config alias.zz '!sh -e x'"),
        Line("cp bad x"),
        "git zz",
    ),
    attack_row(
        "alias, an argument that is there",
        repo_and!("echo : > x.tool && git config alias.zz '!env sh x.tool'"),
        Line("cat bad > x.tool"),
        "git zz",
    ),
    // Aliases that are words of git.
    attack_row(
        "alias, a rebase with a program",
        repo_and!("git config --global alias.zz 'rebase -x hh/x'"),
        Line("mkdir hh; cp bad hh/x"),
        "git commit -q --allow-empty -m 2; git zz HEAD~",
    ),
    attack_row(
        "alias, with a folder of hooks",
        repo_and!("git config alias.zz '-c core.hooksPath=hh commit --allow-empty -qm z'"),
        Line("mkdir hh; cp bad hh/post-commit"),
        "git zz",
    ),
    attack_row(
        "alias, with a monitor",
        repo_and!("git config alias.zz '-c core.fsmonitor=hh/x status'"),
        Line("mkdir hh; cp bad hh/x"),
        "git zz",
    ),
    attack_row(
        "alias, with a monitor in a line",
        repo_and!(
            "git config alias.zz '!cd . && git -c core.hooksPath=hh commit --allow-empty -qm z'"
        ),
        Line("mkdir hh; cp bad hh/post-commit"),
        "git zz",
    ),
    attack_row(
        "alias, a difference by a program",
        repo_and!("git config alias.zz 'difftool -y --extcmd=hh/x' && echo 2 > a"),
        Line("mkdir hh; cp bad hh/x"),
        "git zz",
    ),
    attack_row(
        "alias, a bisection",
        repo_and!(
            "for i in 2 3 4 5; do git commit -q --allow-empty -m $i; done && git bisect start HEAD HEAD~4 && \
             git config alias.zz 'bisect run ./hh/x'"
        ),
        Line("mkdir hh; cp bad hh/x"),
        "git zz",
    ),
    attack_row(
        "alias, in each submodule",
        "git init -q ../o && git -C ../o commit -q --allow-empty -m o && git init -q . && git add a && git -c protocol.file.allow=always submodule -q add ../o sub && git commit -qam one && git config alias.zz 'submodule foreach \"cd .. && ./hh/x\"'",
        Line("mkdir hh; cp bad hh/x"),
        "git zz",
    ),
    attack_row(
        "alias, a filter of branches",
        repo_and!("git config alias.zz \"filter-branch -f --msg-filter '$PWD/hh/x; cat'\""),
        Line("mkdir hh; cp bad hh/x"),
        "export FILTER_BRANCH_SQUELCH_WARNING=1; git zz",
    ),
    attack_row(
        "alias, by another alias",
        repo_and!("git config alias.zy rebase && git config alias.zz 'zy -x \"hh/x\"'"),
        Line("mkdir hh; cp bad hh/x"),
        "git commit -q --allow-empty -m 2; git zz HEAD~",
    ),
    // The user's own configuration, in repositories that a command creates.
    attack_row(
        "relative monitor of the user, a new repository",
        repo_and!("git config --global core.fsmonitor ./tools/x"),
        Line(
            "git init -q lib; git -C lib commit -q --allow-empty -m l; git add lib; mkdir lib/tools; cp bad lib/tools/x",
        ),
        "git -C lib status",
    ),
    attack_row(
        "relative hooks of the user, a new repository",
        repo_and!("git config --global core.hooksPath .husky"),
        Line("git init -q lib; mkdir lib/.husky; cp bad lib/.husky/post-commit"),
        "git -C lib commit -q --allow-empty -m l",
    ),
    attack_row(
        "relative hooks of the user, a later file",
        repo_and!("git config --global core.hooksPath .husky"),
        Calls(&[
            ("run_command", r#"{"command": "git init -q lib"}"#),
            (
                "run_command",
                r#"{"command": "mkdir lib/.husky; ln -s ../../bad lib/.husky/post-commit"}"#,
            ),
        ]),
        "git -C lib commit -q --allow-empty -m l",
    ),
    attack_row(
        "relative hooks, a new work tree",
        repo_and!("git config core.hooksPath .husky && mkdir .husky && echo : > .husky/pre-push"),
        Line("git worktree add -q wt; mkdir -p wt/.husky; cp bad wt/.husky/post-commit"),
        "git -C wt commit -q --allow-empty -m w",
    ),
    attack_row(
        "filter, a line in a line",
        repo_and!(
            "git config filter.f.clean \"sh -c 'cd t; sh x'\" && echo 'a filter=f' > .gitattributes && echo z > a"
        ),
        Line("mkdir t; cp bad t/x"),
        "git add a",
    ),
    attack_row(
        "monitor, by a chain of links",
        repo_and!(
            "mkdir t && printf '#!/bin/sh\\n' > t/x && chmod +x t/x && ln -s t/x l && ln -s l m && git config core.fsmonitor $PWD/m"
        ),
        Line("ln -sf bad l"),
        "",
    ),
    attack_row(
        "configuration of the user, by a chain of links",
        repo_and!("touch c && ln -s c l && ln -s w/l ../.gitconfig"),
        Line("printf '[core]\nfsmonitor=./bad\n' > i; ln -sf i l"),
        "",
    ),
    attack_row(
        "hooks, by a large configuration",
        repo_and!(
            "git config core.hooksPath hk && (printf '#'; head -c 1200000 /dev/zero | tr '\\0' x; echo) >> .git/config"
        ),
        Line("mkdir hk; cp bad hk/post-commit"),
        "",
    ),
    attack_row(
        "a large hook of a dependency",
        repo_and!(
            "git init -q target/l && (echo '#!/bin/sh'; echo 'exit 0'; head -c 1200000 /dev/zero | tr '\\0' x) > target/l/.git/hooks/post-commit && chmod +x target/l/.git/hooks/post-commit"
        ),
        Line(
            "cd target/l/.git/hooks; (cat ../../../../bad; echo exit; cat post-commit) > n; cat n > post-commit",
        ),
        "git -C target/l commit -q --allow-empty -m l",
    ),
    // Remotes where commands may write.
    attack_row(
        "remote",
        private_remote!(":"),
        Line("git remote add o $(dirname $PWD)/store/e"),
        "git push o HEAD",
    ),
    attack_row(
        "remote among the temporary files",
        private_remote!(":"),
        Line("git remote add o ../tmp/e"),
        "git push o HEAD",
    ),
    attack_row(
        "remote, an encoded address",
        private_remote!(":"),
        Line("git remote add o file://$PWD/../store/%65"),
        "git push o HEAD",
    ),
    attack_row(
        "remote, by the home",
        private_remote!(":"),
        Line("git remote add o '~/store/e'"),
        "git push o HEAD",
    ),
    attack_row(
        "remote, for pushing",
        private_remote!("git remote add o ../o"),
        Line("git config remote.o.pushurl ../store/e"),
        "git push o HEAD",
    ),
    attack_row(
        "remote of a branch",
        private_remote!("git checkout -qb b"),
        Line("git config branch.b.remote ../store/e"),
        "git -c push.default=current push",
    ),
    attack_row(
        "remote, by a link",
        private_remote!(":"),
        Line("ln -s ../store/e l.git; git remote add o ./l"),
        "git push o HEAD",
    ),
    attack_row(
        "remote, by a later link",
        private_remote!(":"),
        Calls(&[
            ("run_command", r#"{"command": "git init -q --bare l; git remote add o $PWD/l"}"#),
            ("run_command", r#"{"command": "rm -rf l; ln -s ../store/e l"}"#),
        ]),
        "git push o HEAD",
    ),
    attack_row(
        "remote, by a later file",
        private_remote!(":"),
        Calls(&[
            ("run_command", r#"{"command": "git remote add o ./l"}"#),
            ("run_command", r#"{"command": "echo gitdir: ../store/e > l"}"#),
        ]),
        "git push o HEAD",
    ),
    attack_row(
        "remote in a file of its own",
        private_remote!(":"),
        Line("mkdir -p .git/remotes; echo URL: ../store/e > .git/remotes/o"),
        "git push o HEAD",
    ),
    attack_row(
        "remote of a branch in a file of its own",
        private_remote!(":"),
        Line("mkdir -p .git/branches; echo ../store/e > .git/branches/o"),
        "git push o HEAD",
    ),
    attack_row(
        "remote of a nested repository",
        private_remote!(":"),
        Line(
            "git init -q lib; git -C lib commit -q --allow-empty -m l; git -C lib remote add o $PWD/../store/e",
        ),
        "git -C lib push o HEAD",
    ),
    attack_row(
        "remote that is the folder of remotes",
        REPO,
        Line(
            "rm -rf .git/remotes; git init -q --bare .git/remotes; cp bad .git/remotes/hooks/update; git remote add o .git/remotes",
        ),
        "git push o HEAD",
    ),
    // Folders with the files of a repository, in which git finds work trees as well.
    attack_row(
        "pointer in what looks like a repository",
        "git init -q . && git add a && git commit -qm one && git init -q ../o && git -C ../o commit -q --allow-empty -m o && git -C ../o config core.fsmonitor $PWD/bad",
        Line(
            "mkdir -p d/objects d/refs; touch d/HEAD; git init -q d/lib; git -C d/lib commit -q --allow-empty -m l; git add d/lib; rm -rf d/lib/.git; echo gitdir: $PWD/../o/.git > d/lib/.git",
        ),
        "git -C d/lib status",
    ),
    attack_row(
        "pointer in a work tree that looks like a repository",
        "git init -q . && git add a && git commit -qm one && git init -q ../o && git -C ../o commit -q --allow-empty -m o && git -C ../o config core.fsmonitor $PWD/bad",
        Line(
            "mkdir objects refs; touch HEAD; git init -q lib; git -C lib commit -q --allow-empty -m l; git add lib; rm -rf lib/.git; echo gitdir: $PWD/../o/.git > lib/.git",
        ),
        "git -C lib status",
    ),
    attack_row(
        "monitor among the hooks, which are not there",
        "git init -q . && git add a && git commit -qm one && rm -rf .git/hooks && git config core.fsmonitor .git/hooks/query",
        Line("mkdir .git/hooks; cp bad .git/hooks/query"),
        "",
    ),
];

const MONITOR: &str =
    r#"{"path": "PATH", "content": "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = BAD\n"}"#;

/// Attacks by the tools for files. `PATH` stands for the row's name up to a colon, `BAD` for the program.
const CALLS: &[AttackRow] = &[
    attack_row(".git/config", REPO, Call("write_file", MONITOR), ""),
    attack_row(".GIT/config", REPO, Call("write_file", MONITOR), ""),
    attack_row("lib/.git/config: nested", NESTED, Call("write_file", MONITOR), "git -C lib status"),
    attack_row(".git/modules/sub/config", SUB, Call("write_file", MONITOR), ""),
    attack_row(
        "l/config: a link",
        "git init -q . && git add a && git commit -qm one && ln -s .git l",
        Call("write_file", MONITOR),
        "",
    ),
    attack_row(
        "real/config: a link for .git",
        "git init -q . && git add a && git commit -qm one && mv .git real && ln -s real .git",
        Call("write_file", MONITOR),
        "",
    ),
    attack_row(
        "evil/config: bare",
        "git init -q --bare evil && git config -f evil/config core.bare false",
        Call(
            "write_file",
            r#"{"path": "PATH", "content": "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = BAD\n\tworktree = ..\n\tbare = false\n"}"#,
        ),
        "cd evil && git status",
    ),
    attack_row(
        ".git/config: edited",
        REPO,
        Call(
            "edit_file",
            r#"{"path": ".git/config", "old_str": "[core]", "new_str": "[core]\n\tfsmonitor = BAD"}"#,
        ),
        "",
    ),
    attack_row(
        ".git/config: patched",
        REPO,
        Call(
            "apply_patch",
            r#"{"patch": "--- a/.git/config\n+++ b/.git/config\n@@ -1,2 +1,3 @@\n [core]\n+\tfsmonitor = BAD\n \trepositoryformatversion = 0\n"}"#,
        ),
        "",
    ),
    attack_row(
        ".git/rebase-merge/git-rebase-todo",
        REBASE,
        Call("write_file", r#"{"path": "PATH", "content": "exec BAD\n"}"#),
        CONTINUE,
    ),
    attack_row(
        "inc: included",
        "git init -q . && git add a && git commit -qm one && touch inc && git config include.path ../inc",
        Call("write_file", MONITOR),
        "",
    ),
    attack_row(
        ".git: a file",
        "git init -q --bare evil && git config -f evil/config core.bare false && git config -f evil/config core.fsmonitor \"$PWD/bad\"",
        Call("write_file", r#"{"path": "PATH", "content": "gitdir: evil\n"}"#),
        "",
    ),
    attack_row(
        "lib/.husky/post-commit",
        NESTED_HOOKS,
        Call("write_file", r##"{"path": "PATH", "content": "#!/bin/sh\nBAD\n"}"##),
        "chmod +x lib/.husky/post-commit; git -C lib commit -q --allow-empty -m l",
    ),
    attack_row(
        "tools/x",
        "git init -q . && git add a && git commit -qm one && mkdir tools && echo : > tools/x && chmod +x tools/x && ln -s ../../tools/x .git/hooks/post-commit",
        Call("write_file", r##"{"path": "PATH", "content": "#!/bin/sh\nBAD\n"}"##),
        "",
    ),
    attack_row(
        "layout",
        ":",
        Calls(&[
            (
                "write_file",
                r#"{"path": "e/config", "content": "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = BAD\n\tworktree = ..\n\tbare = false\n"}"#,
            ),
            ("write_file", r#"{"path": "e/objects/x", "content": ""}"#),
            ("write_file", r#"{"path": "e/refs/x", "content": ""}"#),
            ("write_file", r#"{"path": "e/HEAD", "content": "ref: refs/heads/m\n"}"#),
        ]),
        "cd e && git status",
    ),
    attack_row(
        "layout, another order",
        ":",
        Calls(&[
            ("write_file", r#"{"path": "e/HEAD", "content": "ref: refs/heads/m\n"}"#),
            ("write_file", r#"{"path": "e/objects/x", "content": ""}"#),
            (
                "write_file",
                r#"{"path": "e/config", "content": "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = BAD\n\tworktree = ..\n\tbare = false\n"}"#,
            ),
            ("write_file", r#"{"path": "e/refs/x", "content": ""}"#),
        ]),
        "cd e && git status",
    ),
    attack_row(
        "layout, patched",
        ":",
        Call(
            "apply_patch",
            r#"{"patch": "--- /dev/null\n+++ b/e/HEAD\n@@ -0,0 +1 @@\n+ref: refs/heads/m\n--- /dev/null\n+++ b/e/objects/x\n@@ -0,0 +1 @@\n+x\n--- /dev/null\n+++ b/e/refs/x\n@@ -0,0 +1 @@\n+x\n--- /dev/null\n+++ b/e/config\n@@ -0,0 +1,5 @@\n+[core]\n+\trepositoryformatversion = 0\n+\tfsmonitor = BAD\n+\tworktree = ..\n+\tbare = false\n"}"#,
        ),
        "cd e && git status",
    ),
];

/// The usual git commands of the user, after an attack.
const USUAL: &str = "git status; git diff; git commit -q --allow-empty -m user; git log -1 -p; git stash list; \
    git submodule status; git diff --submodule=diff HEAD; git branch -a; git fetch -q";

/// A workspace of a user, before the attack.
struct UserWorkspace {
    world: ToolFixture,
    canary: PathBuf,
}

impl UserWorkspace {
    fn new(before: &str, mode: SandboxMode, ceiling: SandboxLevel) -> Self {
        let world = ToolFixture::with(yolo_settings(), |policy| {
            let (path, around) =
                (policy.workspace.clone(), policy.workspace.parent().unwrap().to_owned());
            let canary = around.join("canary");
            fs::write(path.join("a"), "1\n").unwrap();
            fs::write(path.join("bad"), format!("#!/bin/sh\ntouch {}\n", canary.display()))
                .unwrap();
            user(&path, "chmod +x bad");
            let output = user(&path, before);
            assert!(output.0, "{before}: {}", output.1);
            policy.user_git = UserGitConfig::new(Some(&around), home_variable(&around));
            policy.caches.store = Some(around.join("store"));
            policy.protected.extend(followed_by_git(
                &path,
                &path,
                &policy.user_git,
                &LinkResolver::default(),
            ));
            policy.record_path = Some(architect::exec::new_record_path(&around.join("state")));
            (policy.mode, policy.ceiling) = (mode, ceiling);
        });
        let canary = world.path.parent().unwrap().join("canary");
        Self { world, canary }
    }

    fn run(&self, line: &str) -> String {
        let canary = self.canary.display().to_string();
        let line = format!(
            "export CANARY={canary} GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e; {line}"
        );
        self.world.call("run_command", &json!({"command": line, "timeout": 20})).text.to_string()
    }

    fn attack(&self, row: &AttackRow) -> String {
        let call = |tool: &str, arguments: &str| {
            let path = row.name.split(':').next().unwrap();
            let bad = self.world.path.join("bad").display().to_string();
            let arguments = arguments.replace("PATH", path).replace("BAD", &bad);
            let arguments: Value = serde_json::from_str(&arguments).unwrap();
            self.world.call(tool, &arguments).text.to_string()
        };
        match row.attack {
            Line(line) => self.run(line),
            Call(tool, arguments) => call(tool, arguments),
            Calls(calls) => {
                calls.iter().map(|(tool, arguments)| call(tool, arguments) + "\n").collect()
            }
        }
    }

    /// Returns whether the planted program ran.
    fn canary_ran(&self, row: &AttackRow) -> (bool, String) {
        let output = self.attack(row);
        // Only runs outside of the sandbox count.
        let _ = fs::remove_file(&self.canary);
        user(&self.world.path, USUAL);
        user(&self.world.path, row.then);
        (self.canary.exists(), output)
    }
}

fn home_variable(home: &Path) -> impl Iterator<Item = (String, String)> + use<> {
    [("HOME".to_owned(), home.display().to_string())].into_iter()
}

/// Runs a line as the user does, outside of any sandbox.
fn user(path: &Path, line: &str) -> (bool, String) {
    let output = Command::new("sh")
        .args(["-c", line])
        .current_dir(path)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", path.parent().unwrap())
        .env("GIT_EDITOR", "")
        .env_remove("GIT_EDITOR")
        .envs(
            ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"]
                .map(|name| (name, "u")),
        )
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), errors)
}

/// Returns the step between the tested rows: with `ATTACKS_STEP=8`, each eighth one is tested.
fn rows_step() -> usize {
    std::env::var("ATTACKS_STEP").map_or(1, |step| step.parse().unwrap())
}

fn none_gets_through(rows: &[AttackRow], level: SandboxLevel) {
    let mut through = Vec::new();
    for row in rows.iter().step_by(rows_step()) {
        let scene = UserWorkspace::new(row.before, SandboxMode::WorkspaceWrite, level);
        let found = scene.world.supervisor.enforcement().unwrap();
        if found.level != level {
            eprintln!("skipped: {level} cannot be had here: {found:?}");
            return;
        }
        if let (true, output) = scene.canary_ran(row) {
            through.push(format!("{}: {output}", row.name));
        }
    }
    assert!(through.is_empty(), "{} of {}:\n{}", through.len(), rows.len(), through.join("\n"));
}

#[test]
fn nothing_that_a_command_makes_runs_in_the_user_s_git() {
    none_gets_through(LINES, SandboxLevel::Namespaces);
}

#[test]
fn nothing_that_a_command_makes_runs_in_the_user_s_git_without_mounts() {
    none_gets_through(LINES, SandboxLevel::Landlock);
}

#[test]
fn nothing_that_a_tool_writes_runs_in_the_user_s_git() {
    none_gets_through(CALLS, SandboxLevel::Namespaces);
}

/// Rows that succeed nowhere would show nothing.
#[test]
fn without_a_sandbox_each_of_them_runs() {
    // Only some file systems treat these names as the same.
    const HARMLESS: [&str; 1] = [".GIT/config"];
    // Newer than some versions of the system's programs.
    const MAYBE: [&str; 1] = ["exchanged .git"];
    let rows = LINES.iter().chain(CALLS);
    let rows = rows.filter(|row| !HARMLESS.contains(&row.name) && !MAYBE.contains(&row.name));
    let is_harmless = |row: &&AttackRow| {
        !UserWorkspace::new(row.before, SandboxMode::Off, SandboxLevel::None).canary_ran(row).0
    };
    let harmless: Vec<_> = rows.filter(is_harmless).map(|row| row.name).collect();
    assert!(harmless.is_empty(), "{harmless:?}");
}

/// The work tree may be above the workspace, and name files in it.
#[test]
fn what_a_repository_above_the_workspace_runs_in_it_is_protected() {
    for (setting, value, path) in [
        ("core.hooksPath", "sub/.husky", "sub/.husky/post-commit"),
        ("core.fsmonitor", "sub/tool", "sub/tool"),
        ("alias.zz", "!sub/tool", "sub/tool"),
    ] {
        for is_confined in [false, true] {
            let world = ToolFixture::with(yolo_settings(), |policy| {
                let above = policy.workspace.clone();
                policy.workspace = above.join("sub");
                fs::create_dir(&policy.workspace).unwrap();
                let made =
                    user(&above, &format!("git init -q . && git config {setting} '{value}'"));
                assert!(made.0, "{}", made.1);
                let (path, user) = (&policy.workspace, UserGitConfig::default());
                policy.protected.extend(followed_by_git(
                    path,
                    path,
                    &user,
                    &LinkResolver::default(),
                ));
                policy.mode =
                    if is_confined { SandboxMode::WorkspaceWrite } else { SandboxMode::Off };
            });
            if is_confined
                && world.supervisor.enforcement().unwrap().level < SandboxLevel::Namespaces
            {
                return;
            }
            let above = world.path.parent().unwrap();
            let canary = above.parent().unwrap().join("canary");
            let line = format!(
                "cd .. && mkdir -p $(dirname {path}); printf '#!/bin/sh\\ntouch {}\\n' > {path}; chmod +x {path}",
                canary.display()
            );
            world.call("run_command", &json!({"command": line}));
            let _ = fs::remove_file(&canary);
            user(above, USUAL);
            user(above, "git zz");
            assert_eq!(canary.exists(), !is_confined, "{setting}");
        }
    }
}

/// The user's variables may name programs of the workspace, and configurations that do.
#[test]
fn what_variables_of_the_user_make_git_run_is_protected() {
    for (variables, then) in [
        ("GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.fsmonitor GIT_CONFIG_VALUE_0=t/x", "status"),
        ("GIT_CONFIG_GLOBAL=t/c", "status"),
        ("GIT_CONFIG_SYSTEM=t/c", "status"),
        ("XDG_CONFIG_HOME=t", "status"),
        ("PATH=AROUND/bin:/usr/bin:/bin", "status"),
        ("GIT_SSH_COMMAND=t/x", "fetch ssh://h/x"),
        ("GIT_SSH=t/x", "fetch ssh://h/x"),
        ("GIT_EDITOR=t/x", "commit --allow-empty"),
        ("EDITOR=t/x", "commit --allow-empty"),
        ("GIT_EXTERNAL_DIFF=t/x", "diff HEAD"),
        ("GIT_TEMPLATE_DIR=AROUND/w/t", "init new"),
        ("GIT_CONFIG_PARAMETERS=\"'core.fsmonitor=t/x'\"", "status"),
        ("GIT_CONFIG_PARAMETERS=\"'core.hooksPath'='t'\"", "commit --allow-empty -m n"),
    ] {
        for mode in [SandboxMode::Off, SandboxMode::WorkspaceWrite] {
            let mut line = String::new();
            let world = ToolFixture::with(yolo_settings(), |policy| {
                let path = policy.workspace.clone();
                let around = path.parent().unwrap().display().to_string();
                // A replacement for a git with a prefix of its own.
                let own = "mkdir ../bin ../etc && ln -s ../w/t/c ../etc/gitconfig && printf '#!/bin/sh\nGIT_CONFIG_SYSTEM=%s exec git \"$@\"\n' \
                    $PWD/../etc/gitconfig > ../bin/git && sed -i s,exec,PATH=/usr/bin:/bin\\ exec\\ env, ../bin/git && chmod +x ../bin/git";
                let made = user(&path, &format!("echo 1 > a && {REPO} && echo 2 > a && {own}"));
                assert!(made.0, "{}", made.1);
                let set = variables.replace("AROUND", &around);
                line = format!("export {set}; git {then}; git -C new commit --allow-empty -m n");
                let pairs = set.replace('"', "");
                let pairs = pairs.split(' ').filter_map(|pair| pair.split_once('='));
                let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
                policy.user_git = UserGitConfig::new(None, pairs);
                policy.protected.extend(followed_by_git(
                    &path,
                    &path,
                    &policy.user_git,
                    &LinkResolver::default(),
                ));
                policy.mode = mode;
            });
            if world.supervisor.enforcement().unwrap().level < SandboxLevel::Namespaces
                && mode != SandboxMode::Off
            {
                return;
            }
            let canary = world.path.parent().unwrap().join("canary");
            let plant = format!(
                "mkdir -p t/git t/hooks; printf '#!/bin/sh\ntouch {}\n' > t/x; chmod +x t/x; cp t/x t/hooks/post-commit; cp t/x t/post-commit; \
                 printf '[core]\nfsmonitor=t/x\n' | tee t/c > t/git/config",
                canary.display()
            );
            world.call("run_command", &json!({ "command": plant }));
            user(&world.path, &line);
            assert_eq!(canary.exists(), mode == SandboxMode::Off, "{variables}");
        }
    }
}

/// Ordinary git commands of a model, by the workspace.
const ORDINARY: &[(&str, &[&str])] = &[
    (
        REPO,
        &[
            "git add a && git commit -q --allow-empty -m two && git log --oneline | grep two",
            "git branch side && git checkout -q side && echo 2 > a && git commit -qam side",
            "git checkout -q - && git merge -q side && git tag v1 && git branch -d side",
            "echo 3 > a && git stash -q && git stash pop -q && git commit -qam three",
            "git config user.name someone && git config user.name | grep someone",
            "git config user.name | grep someone",
            "git remote add origin \"$PWD/../o.git\" && git remote -v | grep origin",
            "git checkout -q -b t1 && git branch -q --set-upstream-to=t1 t1 2>/dev/null; git branch -q -f t2 && \
            git checkout -q --track -b t3 t2 && git config branch.t3.merge",
            "git config branch.t3.merge && git checkout -q t1",
            "git worktree add -q wt && git -C wt commit -q --allow-empty -m w && git worktree list | grep wt",
            "git -C wt status && git worktree remove wt",
            "git -c protocol.file.allow=always submodule -q add \"$PWD\" sub && git commit -qam sub",
            "git -C sub log --oneline && git submodule status && git submodule update --init && git -C sub commit -q --allow-empty -m s",
            "git checkout -q -b r1 && echo r1 > a && git commit -qam r1 && git checkout -q t1 && echo r2 > a && git commit -qam r2",
            "! git rebase -q r1 && echo r3 > a && git add a",
            "git rebase --continue && git log --oneline | grep r2",
            "git checkout -q -b m1 && echo m1 > a && git commit -qam m1 && git checkout -q t1 && echo m2 > a && git commit -qam m2",
            "! git merge m1 && echo m3 > a && git add a",
            "git commit -qm merged && git log --oneline | grep merged",
            "git cherry-pick --allow-empty HEAD~ >/dev/null 2>&1 || git cherry-pick --abort || true; git status",
            "git init -q new && cd new && git commit -q --allow-empty -m n && git log --oneline",
            "git -C new commit -q --allow-empty -m m && git -C new log --oneline",
            "git clone -q new copy && git -C copy log --oneline && rm -rf copy",
            "git gc -q && git fsck",
        ],
    ),
    (
        ":",
        &[
            "git init -q . && git add a && git commit -qm one",
            "git commit -q --allow-empty -m two && git log --oneline | grep one",
            "git config user.email e@example.org && git config user.email",
            "git checkout -q -b b && git checkout -q - && git merge -q b",
        ],
    ),
    (
        SUB,
        &[
            "git -C sub commit -q --allow-empty -m s && git add sub && git commit -qm s",
            "git submodule update --init --recursive && git submodule foreach git status",
            "cd sub && git checkout -q -b b && git config branch.b.description d && git config branch.b.description",
        ],
    ),
];

#[test]
fn ordinary_commands_of_git_work() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        for (before, lines) in ORDINARY {
            let scene = UserWorkspace::new(before, SandboxMode::WorkspaceWrite, level);
            if scene.world.supervisor.enforcement().unwrap().level != level {
                continue;
            }
            for line in *lines {
                let output = scene.run(line);
                assert!(
                    output.contains("[exit code 0") && !output.contains("denied"),
                    "{level}: {line}: {output}"
                );
            }
            let (_, output) = user(&scene.world.path, "git status");
            assert_eq!(output, "");
        }
    }
}

/// A file with the hook's first name may be the command's.
#[test]
fn the_name_of_a_renamed_hook_is_the_one_that_it_has() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let scene = UserWorkspace::new(REPO, SandboxMode::WorkspaceWrite, level);
        if scene.world.supervisor.enforcement().unwrap().level != level {
            continue;
        }
        let output = scene.run(
            "git init -q lib && cd lib/.git/hooks && cp ../../../bad pre-push && : > pre-push.denied",
        );
        let new = "lib/.git/hooks/pre-push.denied-2";
        assert!(output.contains(&format!("pre-push was renamed to {new}")), "{level}: {output}");
        assert!(scene.world.path.join(new).exists());
    }
}

/// In a work tree that a command creates, copies of the user's own hooks stay.
#[test]
fn a_copy_of_a_hook_of_the_user_stays_in_a_new_work_tree() {
    let before = repo_and!(
        "mkdir .husky && echo : > .husky/post-commit && git add . && git commit -qm h && git config core.hooksPath .husky"
    );
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let scene = UserWorkspace::new(before, SandboxMode::WorkspaceWrite, level);
        if scene.world.supervisor.enforcement().unwrap().level != level {
            continue;
        }
        let output = scene.run(
            "git worktree add -q wt && cp bad wt/.husky/pre-push && : > wt/.husky/pre-push.denied",
        );
        let new = "wt/.husky/pre-push.denied-2";
        assert!(output.contains(&format!("; it was renamed to {new}")), "{level}: {output}");
        assert!(scene.world.path.join(new).exists());
        assert_eq!(
            fs::read_to_string(scene.world.path.join("wt/.husky/post-commit")).unwrap(),
            ":\n"
        );
    }
}

/// A linked work tree, and a submodule, have their repository elsewhere.
#[test]
fn a_workspace_whose_repository_is_elsewhere_commits() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        for make in [
            "rmdir w; mkdir o && cd o && git init -q . && git commit -q --allow-empty -m o && git worktree add -q ../w",
            "rmdir w; mkdir m && cd m && git init -q . && git commit -q --allow-empty -m o && cd .. && git init -q s && \
                cd s && git -c protocol.file.allow=always submodule -q add ../m w && git commit -qm w",
        ] {
            let world = ToolFixture::with(yolo_settings(), |policy| {
                let around = policy.workspace.parent().unwrap().to_owned();
                let output = user(&around, make);
                assert!(output.0, "{}", output.1);
                policy.workspace = [around.join("w"), around.join("s/w")]
                    .into_iter()
                    .find(|w| w.is_dir())
                    .unwrap();
                (policy.mode, policy.ceiling) = (SandboxMode::WorkspaceWrite, level);
            });
            if world.supervisor.enforcement().unwrap().level != level {
                continue;
            }
            let who = "git -c user.name=n -c user.email=e";
            for line in [
                format!(
                    "echo 1 > a && git add a && {who} commit -qm one && git log --oneline | grep one"
                ),
                format!(
                    "git checkout -q -b side && echo 2 > a && {who} commit -qam two && git status"
                ),
                format!("git checkout -q - && {who} merge -q side && git tag v1 && git stash list"),
            ] {
                let output = world.call("run_command", &json!({"command": line})).text.to_string();
                assert!(output.contains("[exit code 0"), "{level}: {line}: {output}");
            }
            let canary = world.path.parent().unwrap().join("canary");
            let bad =
                format!("printf '#!/bin/sh\\ntouch {}\\n' > bad; chmod +x bad; ", canary.display());
            for line in [
                "git config core.fsmonitor \"$PWD/bad\"",
                "cp bad $(git rev-parse --git-common-dir)/hooks/post-commit",
                "echo $PWD > $(git rev-parse --git-dir)/commondir",
                "ln -sf $PWD/x $(git rev-parse --git-common-dir)/config",
                "printf '[core]\\nfsmonitor=%s\\n' \"$PWD/bad\" > $(git rev-parse --git-dir)/config.worktree; git config extensions.worktreeConfig true",
            ] {
                world.call("run_command", &json!({"command": format!("{bad}{line}")}));
                let _ = fs::remove_file(&canary);
                user(&world.path, "git status; git commit -q --allow-empty -m x");
                assert!(!canary.exists(), "{level}: {line}");
            }
        }
    }
}

/// Ordinary git commands of a model in a linked work tree. Many of them make files at the top of the repository.
const ORDINARY_LINKED: &[&str] = &[
    "echo x > a && git add a && git commit -qm here && git log --oneline | grep here",
    "git branch side && git pack-refs --all && git branch -D side",
    "git tag v1 && git tag v2 && git pack-refs --all && git tag -d v1 && git tag | grep v2",
    "git checkout -q -b b1 && echo 2 > a && git commit -qam two && git checkout -q w && git merge -q b1 && git branch -d b1",
    "echo 3 > a && git stash -q && git stash pop -q && git commit -qam three",
    "git config user.name someone && git config user.name | grep someone",
    "git config user.name | grep someone && git remote add origin ../o.git",
    "git checkout -q -b r1 && echo r1 > a && git commit -qam r1 && git checkout -q w && echo r2 > a && git commit -qam r2",
    "! git rebase -q r1 && echo r3 > a && git add a",
    "git rebase --continue && git log --oneline | grep r2",
    "git reflog expire --expire=now --all && git gc -q --prune=now && git fsck",
];

/// Attacks by files of the main work tree, and of another linked one.
const LINKED: &[&str] = &[
    "git config extensions.worktreeConfig true; printf '[core]\nfsmonitor=%s\n' $PWD/bad > $G/worktrees/other/config.worktree",
    "cp -r $G e; git config -f e/config core.fsmonitor $PWD/bad; echo $PWD/e > $G/worktrees/other/commondir",
    "cp -r $G e; git config -f e/config core.fsmonitor $PWD/bad; echo $PWD/e > $G/worktrees/w/commondir",
    "rm -rf $G/hooks; mkdir $G/hooks; cp bad $G/hooks/post-commit",
    "mv $G/hooks $G/old; mkdir h; cp bad h/post-commit; mv h $G/hooks",
    "cp $G/config c; git config -f c core.fsmonitor $PWD/bad; mv -f c $G/config",
    "cp -r $G e; git config -f e/config core.fsmonitor $PWD/bad; mv $G $G.old; mv e $G",
    "cd $G; mkdir rebase-merge; echo refs/heads/m > rebase-merge/head-name; git rev-parse HEAD | tee rebase-merge/onto \
        > rebase-merge/orig-head; echo 1 | tee rebase-merge/msgnum > rebase-merge/end; touch rebase-merge/interactive \
        rebase-merge/done; echo 'exec ./bad' > rebase-merge/git-rebase-todo",
];

impl UserWorkspace {
    /// Returns a workspace that is a linked work tree. Beside it are another one, `other`, and the main one, `main`.
    fn linked(mode: SandboxMode, ceiling: SandboxLevel) -> Self {
        let world = ToolFixture::with(yolo_settings(), |policy| {
            let around = policy.workspace.parent().unwrap().to_owned();
            let make = format!(
                "rmdir w; mkdir main && cd main && echo 1 > a && {REPO} && git worktree add -q ../w && git worktree add -q \
                 ../other && printf '#!/bin/sh\\ntouch {}\\n' > bad && chmod +x bad && cp bad ../w && cp bad ../other",
                around.join("canary").display()
            );
            let output = user(&around, &make);
            assert!(output.0, "{}", output.1);
            let (path, user) = (&policy.workspace, UserGitConfig::default());
            policy.protected.extend(followed_by_git(path, path, &user, &LinkResolver::default()));
            (policy.mode, policy.ceiling) = (mode, ceiling);
        });
        let canary = world.path.parent().unwrap().join("canary");
        Self { world, canary }
    }

    fn is_hit_in_any_work_tree(&self, line: &str, then: &str) -> (bool, String) {
        let output = self.run(&format!("export G=$(git rev-parse --git-common-dir); {line}"));
        let _ = fs::remove_file(&self.canary);
        for name in ["w", "main", "other"] {
            let path = self.world.path.parent().unwrap().join(name);
            user(&path, USUAL);
            user(&path, then);
        }
        (self.canary.exists(), output)
    }
}

/// Returns the attacks on a linked work tree: its own, and those on a repository, applied to the shared folder.
fn on_linked() -> Vec<(String, &'static str)> {
    let shared = LINES.iter().filter(|row| row.before == REPO).filter_map(|row| match row.attack {
        Line(line) => Some((line.replace(".git/", "$G/"), row.then)),
        Call(..) | Calls(_) => None,
    });
    let own = LINKED.iter().map(|line| ((*line).to_owned(), CONTINUE));
    shared.chain(own).collect()
}

#[test]
fn ordinary_commands_work_in_a_linked_work_tree() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        let scene = UserWorkspace::linked(SandboxMode::WorkspaceWrite, level);
        if scene.world.supervisor.enforcement().unwrap().level != level {
            continue;
        }
        for line in ORDINARY_LINKED {
            let output = scene.run(line);
            assert!(
                output.contains("[exit code 0") && !output.contains("denied"),
                "{level}: {line}: {output}"
            );
        }
        for name in ["w", "main", "other"] {
            let path = scene.world.path.parent().unwrap().join(name);
            assert_eq!(user(&path, "git status && git log -1"), (true, String::new()), "{name}");
        }
    }
}

#[test]
fn nothing_that_a_command_makes_runs_in_the_repository_of_a_linked_work_tree() {
    let mut through = Vec::new();
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        for (line, then) in on_linked().into_iter().step_by(rows_step()) {
            let scene = UserWorkspace::linked(SandboxMode::WorkspaceWrite, level);
            if scene.world.supervisor.enforcement().unwrap().level != level {
                break;
            }
            if let (true, output) = scene.is_hit_in_any_work_tree(&line, then) {
                through.push(format!("{level}: {line}: {output}"));
            }
        }
    }
    assert!(through.is_empty(), "{}", through.join("\n"));
}

/// Attacks that hit nothing without a sandbox would show nothing.
#[test]
fn without_a_sandbox_attacks_on_a_linked_work_tree_hit() {
    let is_hit = |(line, then): &(String, &str)| {
        UserWorkspace::linked(SandboxMode::Off, SandboxLevel::None)
            .is_hit_in_any_work_tree(line, then)
            .0
    };
    let (all, own) = (on_linked(), LINKED.len());
    let harmless: Vec<_> = all.iter().filter(|row| !is_hit(row)).map(|row| &row.0).collect();
    assert!(!harmless.iter().any(|line| LINKED.contains(&line.as_str())), "{harmless:#?}");
    assert!(all.len() - harmless.len() > own + 20, "{harmless:#?}");
}

/// A file of the workspace alone could name any folder.
#[test]
fn a_pointer_to_a_repository_that_does_not_know_the_workspace_opens_nothing() {
    let world = ToolFixture::with(yolo_settings(), |policy| {
        let around = policy.workspace.parent().unwrap();
        assert!(user(&around.join("w"), "git init -q ../o; echo 'gitdir: ../o/.git' > .git").0);
        policy.mode = SandboxMode::WorkspaceWrite;
    });
    if world.supervisor.enforcement().unwrap().level < SandboxLevel::Landlock {
        return;
    }
    world.call("run_command", &json!({"command": "echo x > ../o/.git/description"}));
    world.call("run_command", &json!({"command": "echo x > ../o/.git/refs/x"}));
    assert!(!world.path.join("../o/.git/refs/x").exists());
}

/// Other writable folders can be, or become, a work tree as well.
#[test]
fn a_further_folder_that_is_writable_is_looked_after() {
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        for before in ["git init -q .", ":"] {
            let world = ToolFixture::with(yolo_settings(), |policy| {
                let other = policy.workspace.parent().unwrap().join("other");
                fs::create_dir(&other).unwrap();
                assert!(user(&other, before).0);
                policy.writable = vec![other];
                (policy.mode, policy.ceiling) = (SandboxMode::WorkspaceWrite, level);
            });
            if world.supervisor.enforcement().unwrap().level != level {
                continue;
            }
            let other = world.path.parent().unwrap().join("other");
            let canary = other.parent().unwrap().join("canary");
            let line = format!(
                "cd ../other && printf '#!/bin/sh\\ntouch {}\\n' > bad && chmod +x bad && git init -q . && \
                 git config core.fsmonitor $PWD/bad; cp bad .git/hooks/post-commit; git config user.name n",
                canary.display()
            );
            world.call("run_command", &json!({"command": line}));
            user(&other, USUAL);
            assert!(!canary.exists(), "{level}: {before}");
            assert!(user(&other, "git log -1").0, "{level}: {before}");
        }
    }
}

/// The protected paths of the workspace are below both folders.
#[test]
fn a_writable_folder_around_the_workspace_weakens_nothing() {
    let run = |is_around: bool| {
        ToolFixture::with(yolo_settings(), |policy| {
            assert!(user(&policy.workspace, "git init -q .").0);
            if is_around {
                policy.writable = vec![policy.workspace.parent().unwrap().to_owned()];
            }
            policy.mode = SandboxMode::WorkspaceWrite;
        })
    };
    let level = |world: &ToolFixture| world.supervisor.enforcement().unwrap().level;
    let world = run(true);
    assert_eq!(level(&world), level(&run(false)));
    let bad = "git config core.fsmonitor x; touch .git/hooks/post-commit; mv $PWD ../moved";
    for line in ["git config user.name n", bad] {
        world.call("run_command", &json!({ "command": line }));
    }
    let config = fs::read_to_string(world.path.join(".git/config")).unwrap();
    assert!(config.contains("name = n") && !config.contains("fsmonitor"), "{config}");
    assert!(!world.path.join(".git/hooks/post-commit").exists());
}

/// The mount over a file disappears in one command if another command, which has no such mount, replaces the file.
#[test]
fn two_runs_at_the_same_time_plant_nothing_in_a_folder_of_both() {
    let around = tempfile::tempdir().unwrap();
    let (shared, canary) = (around.path().join("shared"), around.path().join("canary"));
    fs::create_dir(&shared).unwrap();
    let run = || {
        ToolFixture::with(yolo_settings(), |policy| {
            policy.writable = vec![shared.clone()];
            policy.mode = SandboxMode::WorkspaceWrite;
        })
    };
    let line = |line: &str| {
        let line = line.replace("SHARED", shared.to_str().unwrap());
        json!({"command": line.replace("CANARY", canary.to_str().unwrap()), "timeout": 60})
    };
    let (first, second) = (run(), run());
    first.call("run_command", &line("git init -q SHARED/n; printf '#!/bin/sh\ntouch CANARY\n' > SHARED/bad; chmod +x SHARED/bad"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let wait = "touch SHARED/ready; until test -e SHARED/go; do sleep 0.05; done; git -C SHARED/n config core.fsmonitor SHARED/bad";
            second.call("run_command", &line(wait));
        });
        let replace = "until test -e SHARED/ready; do sleep 0.05; done; cp SHARED/n/.git/config SHARED/c; mv SHARED/c SHARED/n/.git/config; touch SHARED/go";
        first.call("run_command", &line(replace));
    });
    assert!(shared.join("go").exists());
    let _ = fs::remove_file(&canary);
    user(&shared.join("n"), "git status");
    assert!(!canary.exists());
}

/// A folder that holds the user's repositories, and no work tree itself.
#[test]
fn repositories_in_a_further_folder_that_is_writable_are_protected() {
    let attacks = [
        ("cp bad ../other/r/.git/hooks/post-checkout", "git -C ../other/r checkout -qb z"),
        (
            "cp bad ../other/a/b/c/r/.git/hooks/post-checkout",
            "git -C ../other/a/b/c/r checkout -qb z",
        ),
        ("git -C ../other/r config core.fsmonitor $PWD/bad", "git -C ../other/r status"),
        ("cp bad ../other/r/t/m", "git -C ../other/r status"),
        ("cp bad ../other/named/m", "git status"),
        ("cp bad ../other/above/part/m", "git -C ../other/above status"),
        (
            "git init -q ../other/new; git -C ../other/new config core.fsmonitor $PWD/bad",
            "git -C ../other/new status",
        ),
    ];
    for level in [SandboxLevel::Namespaces, SandboxLevel::Landlock] {
        for (attack, then) in attacks {
            let world = ToolFixture::with(yolo_settings(), |policy| {
                let around = policy.workspace.parent().unwrap().to_owned();
                let (other, canary) = (around.join("other"), around.join("canary"));
                fs::create_dir(&other).unwrap();
                let before = format!(
                    "printf '#!/bin/sh\ntouch {}\n' > bad; chmod +x bad; git init -q .; git init -q ../other/r; \
                     git init -q ../other/a/b/c/r; cd ../other; mkdir named r/t; printf '#!/bin/sh\nfalse\n' > named/m; chmod +x named/m; \
                     cp named/m r/t; git -C r config core.fsmonitor t/m; mkdir -p above/part; cp named/m above/part; git init -q above; \
                     git -C above config core.fsmonitor part/m; cd -; git config core.fsmonitor $PWD/../other/named/m",
                    canary.display()
                );
                assert!(user(&policy.workspace, &before).0);
                // Of one folder, only a part is writable.
                let is_part = attack.contains("above");
                policy.writable = vec![if is_part { other.join("above/part") } else { other }];
                (policy.mode, policy.ceiling) = (SandboxMode::WorkspaceWrite, level);
            });
            if world.supervisor.enforcement().unwrap().level != level {
                continue;
            }
            let printed = world.call("run_command", &json!({"command": attack})).text.to_string();
            // Only runs outside of the sandbox count.
            let canary = world.path.parent().unwrap().join("canary");
            let _ = fs::remove_file(&canary);
            user(&world.path, then);
            assert!(!canary.exists(), "{level}: {attack}: {printed}");
        }
    }
}

/// The engine is killed alone, and with its supervisors: the supervisors finish its work, or the next start does. After
/// two interrupts, the engine does not end before its supervisors.
#[test]
fn what_was_planted_is_found_when_everything_was_killed() {
    for end in ["kill engine", "kill all", "interrupt twice"] {
        let kills_all = end == "kill all";
        let home = tempfile::tempdir().unwrap();
        let (path, canary) = (home.path().join("w"), home.path().join("canary"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("a"), "1\n").unwrap();
        fs::write(path.join("bad"), format!("#!/bin/sh\ntouch {}\n", canary.display())).unwrap();
        assert!(user(&path, &format!("chmod +x bad; {REPO}")).0);
        // Names need not be UTF-8.
        let odd = OsStr::from_bytes(b"odd\xff");
        symlink("a", path.join(".git/info").join(odd)).unwrap();
        assert!(user(&path, "git init -q odd && mv odd $(printf 'odd\\377')").0);
        let line = "trap : INT TERM; git init -q lib; git -C lib -c user.name=n -c user.email=e commit -q --allow-empty -m l; git add lib; \
                    git -C lib config core.fsmonitor $PWD/bad; mkdir .claude; touch .claude/settings.json .mcp.json; touch planted; while :; do sleep 60; done";
        let script = format!(
            "[[turn]]\ncalls = [{{ name = \"run_command\", arguments = {{ command = '{line}', timeout = 100 }} }}]\n[[turn]]\ntext = \"done\"\n"
        );
        let file = home.path().join("script.toml");
        fs::write(&file, script).unwrap();
        let start = |name: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_architect"));
            command
                .args(["run", "x", "--mode", "yolo", "--model"])
                .arg(format!("scripted/{name}"))
                .current_dir(&path)
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap())
                .env("HOME", home.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command
        };
        let mut engine = start(&file.display().to_string()).spawn().unwrap();
        let due = Instant::now() + Duration::from_secs(20);
        while !path.join("planted").exists() {
            assert!(Instant::now() < due, "nothing was planted");
            std::thread::sleep(Duration::from_millis(20));
        }
        let supervisors = children(engine.id());
        assert!(!supervisors.is_empty());
        if kills_all {
            let all = supervisors.iter().map(|id| format!(" {id}")).collect::<String>();
            // Some end with another one, before their own signal; the loop below checks that all are gone.
            user(&path, &format!("kill -STOP {0} {all}; kill -KILL {0} {all}", engine.id()));
        } else if end == "kill engine" {
            engine.kill().unwrap();
        } else {
            // The command continues for a while after the first signal; a second one at the same time would not count.
            user(&path, &format!("kill -INT {0}; sleep 0.3; kill -INT {0}", engine.id()));
        }
        let ended = engine.wait().unwrap();
        let is_gone = |id: &u32| has_ended(*id);
        if end == "interrupt twice" {
            assert_eq!(ended.code(), Some(130));
            assert!(supervisors.iter().all(is_gone), "a supervisor outlives the engine");
        }
        while !supervisors.iter().all(is_gone) {
            assert!(Instant::now() < due + Duration::from_secs(10), "a supervisor stays");
            std::thread::sleep(Duration::from_millis(20));
        }
        if kills_all {
            // Any start finishes the work.
            let mut next = Command::new(env!("CARGO_BIN_EXE_architect"));
            next.arg("sessions").current_dir(&path).env_clear().env("HOME", home.path());
            assert!(next.stdout(Stdio::null()).status().unwrap().success());
        }
        user(&path, USUAL);
        assert!(!canary.exists(), "{end}");
        for name in [".claude", ".mcp.json"] {
            assert!(!path.join(name).exists(), "{name}, {end}");
        }
        let left = fs::read_dir(home.path().join(".local/state/architect/repositories"));
        assert_eq!(left.map_or(0, Iterator::count), 0);
        let config = fs::read_to_string(path.join("lib/.git/config")).unwrap();
        assert!(config.contains("repositoryformatversion"), "{config}");
    }
}

/// Returns whether a process has ended, collected or not. Ordinary users may not look into a supervisor's folders.
fn has_ended(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"));
    stat.map_or(true, |stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

/// Returns the descendants of a process.
fn children(id: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let others = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let all: String = others.chain([text]).fold(String::new(), |all, one| all + " " + &one);
    let mut all: Vec<u32> = all.split_whitespace().filter_map(|id| id.parse().ok()).collect();
    all.sort_unstable();
    all.dedup();
    let below: Vec<u32> = all.iter().flat_map(|id| children(*id)).collect();
    all.extend(below);
    all
}
