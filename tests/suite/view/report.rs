//! The report of a run, in each of its formats.

use architect::view::report::{ReportFormat, RunReport};
use architect::view::trace::StepChange;
use architect::view::{RunInfo, RunResult};

use super::fixture::{ViewFixture, call_turn, run_info, text_turn};

/// Active markup, unless it is escaped.
const HOSTILE: &str =
    "Edit | the <script>alert(1)</script>\n<!-- x --> @me #1 [l](javascript:x) ![i](http://x) `c`";

fn run(answer: &str) -> (RunInfo, RunResult) {
    let edit = r#"{"path":"src/main.py","old_str":"a","new_str":"b"}"#;
    let tools =
        [("c1", "edit_file", edit), ("c2", "rm", r#"{"path":"/|x"}"#), ("c3", "fail", "{}")];
    let (result, _) = ViewFixture::new(vec![call_turn("", &tools), text_turn(answer)]).run(vec![]);
    (run_info(), result)
}

/// A change of a file by a step, with this text added.
fn changed(text: &str) -> StepChange {
    let patch = format!("--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+{text}");
    StepChange { step: 1, path: "src/<b>.md".into(), added: 1, removed: 0, patch }
}

fn rendered(format: ReportFormat, task: &str, answer: &str) -> String {
    let (mut info, result) = run(answer);
    info.task = task.into();
    RunReport { info: &info, result: &result, changes: &[] }.render(format)
}

#[test]
fn a_markdown_report_has_the_changes_and_the_costs() {
    insta::assert_snapshot!(rendered(ReportFormat::Markdown, "Edit the greeting", "It is **edited**."), @r#"
    # ✅ Edit the greeting

    **Completed** · llm_done (exit 0) · 1 step · 2 LLM calls · 1.2 s · \$0.000900 · 1 denied call

    - session: `s-1`
    - model: `scripted/demo`
    - agent: `build`
    - began: `2026-01-02T03:04:05Z`

    ## Task

    > Edit the greeting  

    ## Answer

    It is **edited**.

    ## Files

    | file | change | lines |
    |---|---|---|
    | `src/main.py` | modified | +5 −3 |

    ## Tool calls

    | tool | what | result | time |
    |---|---|---|---|
    | `edit_file` | `src/main.py` | ok | 0 µs |
    | `rm` | `/\|x` | denied by the rule run_command(rm \*) | 0 µs |
    | `fail` |  | old_str not found in a.txt | 0 µs |

    ## Denied

    | tool | arguments | reason |
    |---|---|---|
    | `rm` | `{"path":"/\|x"}` | denied by the rule run_command(rm \*) |

    ## Usage

    | what | how much |
    |---|---|
    | input tokens | 200 |
    | output tokens | 40 |
    | cost: agent | \$0.000900 |
    | cost: total | \$0.000900 |
    "#);
}

#[test]
fn a_report_for_github_is_a_comment_with_folded_tables() {
    insta::assert_snapshot!(rendered(ReportFormat::Github, "Edit the greeting", "It is **edited**."), @r#"
    <!-- architect-report -->
    ### ✅ Edit the greeting

    **Completed** · llm_done (exit 0) · 1 step · 2 LLM calls · 1.2 s · \$0.000900 · 1 denied call

    It is **edited**.

    <details>
    <summary>Files (1)</summary>

    | file | change | lines |
    |---|---|---|
    | `src/main.py` | modified | +5 −3 |

    </details>

    <details>
    <summary>Tool calls (3)</summary>

    | tool | what | result | time |
    |---|---|---|---|
    | `edit_file` | `src/main.py` | ok | 0 µs |
    | `rm` | `/\|x` | denied by the rule run_command(rm \*) | 0 µs |
    | `fail` |  | old_str not found in a.txt | 0 µs |

    </details>

    <details>
    <summary>Denied (1)</summary>

    | tool | arguments | reason |
    |---|---|---|
    | `rm` | `{"path":"/\|x"}` | denied by the rule run_command(rm \*) |

    </details>

    <details>
    <summary>Usage</summary>

    | what | how much |
    |---|---|
    | input tokens | 200 |
    | output tokens | 40 |
    | cost: agent | \$0.000900 |
    | cost: total | \$0.000900 |

    </details>

    <details>
    <summary>Task and run</summary>

    > Edit the greeting  

    - session: `s-1`
    - model: `scripted/demo`
    - agent: `build`
    - began: `2026-01-02T03:04:05Z`

    </details>
    "#);
}

#[test]
fn a_json_report_is_the_result_with_the_run_info() {
    let json = rendered(ReportFormat::Json, "Edit the greeting", "Done.");
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&document["task"], &document["output"]),
        (&"Edit the greeting".into(), &"Done.".into())
    );
    assert_eq!((&document["steps"], &document["exit_code"]), (&1.into(), &0.into()));
}

#[test]
fn text_in_a_markdown_report_is_escaped() {
    for format in [ReportFormat::Markdown, ReportFormat::Github] {
        let text = rendered(format, HOSTILE, HOSTILE);
        for live in ["<script", "<!-- x", "@me", "#1", "[l](", "[i](", "Edit | the", "`javascript"]
        {
            assert!(!text.contains(live), "{live} is live in {text}");
        }
    }
}

#[test]
fn text_in_an_html_report_is_escaped() {
    let text = rendered(ReportFormat::Html, HOSTILE, &format!("{HOSTILE}\" onload='x' \u{202e}"));
    for live in ["<script", "<!-- x", "\" onload='", "\u{202e}"] {
        assert!(!text.contains(live), "{live} is live in {text}");
    }
    assert!(text.contains("Edit | the &lt;script&gt;alert(1)&lt;/script&gt;"));
}

#[test]
fn markup_of_the_model_does_not_reach_the_page() {
    let answer = "# Done\n\n<img src=x onerror=alert(1)>\n\na <b onclick=x>b</b> [l](javascript:alert(1)) \
        ![i](http://x/y.png) <http://z>\n\n[r]\n\n[r]: javascript:x\n\n```\"><script>\ncode\n```\n\n\
        - one\n  - two\n\n| a | b |\n|---|---|\n| <i>1</i> | 2 |\n\n&lt;script&gt;&#x202e;";
    let page = rendered(ReportFormat::Html, "x", answer);
    for live in ["<img", "<b ", "<a ", "<i>", "href", "<script", "\u{202e}"] {
        assert!(!page.contains(live), "{live} is live in {page}");
    }
    for kept in
        ["<h3>Done</h3>", "<li>two</li>", "&lt;img src=x", "l (javascript:alert(1))", "&lt;i&gt;1"]
    {
        assert!(page.contains(kept), "{kept} is missing in {page}");
    }
    for format in [ReportFormat::Markdown, ReportFormat::Github] {
        let text = rendered(format, "x", answer);
        for live in ["<img", "<b ", "](", "http://", "<script", "\u{202e}"] {
            assert!(!text.contains(live), "{live} is live in {text}");
        }
        assert!(
            text.contains("- one\n  - two\n\n| a | b |\n|---|---|\n| &lt;i&gt;1&lt;/i&gt; | 2 |"),
            "{text}"
        );
    }
}

#[test]
fn a_comment_is_limited_in_length() {
    let (mut info, mut result) = run(&"a | b `<x> @me*\n".repeat(20_000));
    info.task = "<&@#|".repeat(50_000).into();
    let tool = result.tools_used[2].clone();
    result.tools_used = vec![tool; 5_000];
    let change = changed("``` <script> @me\n");
    let changes = vec![change; 5_000];
    let report = RunReport { info: &info, result: &result, changes: &changes };
    let text = report.render(ReportFormat::Github);
    assert!(text.len() <= 60_000, "{}", text.len());
    assert!(text.contains("more"));
    assert_eq!(text.matches("<details>").count(), text.matches("</details>").count());
}

#[test]
fn a_patch_cannot_leave_its_block() {
    let (info, result) = run("Done.");
    let changes = [changed("```\n+<script>alert(1)</script> \u{202e}\n")];
    let report = RunReport { info: &info, result: &result, changes: &changes };
    let markdown = report.render(ReportFormat::Markdown);
    let (_, block) = markdown.split_once("Step 1: `src/<b>.md` +1 −0\n\n````diff\n").unwrap();
    assert!(block.ends_with("\n````\n\n") && !block.contains('\u{202e}'), "{block}");
    let page = report.render(ReportFormat::Html);
    assert!(page.contains("+&lt;script&gt;") && page.contains("<code>src/&lt;b&gt;.md</code>"));
    let json: serde_json::Value = serde_json::from_str(&report.render(ReportFormat::Json)).unwrap();
    assert_eq!(json["changes"][0]["patch"], changes[0].patch);
}
