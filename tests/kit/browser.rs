//! A headless Chromium, driven over the protocol of `WebDriver` by Debian's `chromium-driver`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use ureq::Agent;

/// A browser with an empty profile. It ends with this.
pub(crate) struct Browser {
    driver: Child,
    agent: Agent,
    session: String,
    profile: TempDir,
}

impl Browser {
    /// Starts a browser with a window of this size; `None`, with a line that says so, if there is no driver.
    pub(crate) fn start(width: u32, height: u32) -> Option<Self> {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut driver) = command.spawn() else {
            println!("skipped: there is no chromedriver (Debian: chromium-driver)");
            return None;
        };
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines
            .take(20)
            .find_map(|line| {
                let (_, port) = line.split_once("started successfully on port ")?;
                port.trim_end_matches('.').parse::<u16>().ok()
            })
            .expect("the driver says its port");
        let config = Agent::config_builder().timeout_global(Some(Duration::from_secs(120)));
        let agent = config.http_status_as_error(false).proxy(None).build().into();
        let profile = tempfile::tempdir().unwrap();
        let mut browser =
            Self { driver, agent, session: format!("http://127.0.0.1:{port}/session"), profile };
        let profile = browser.profile.path().display();
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &format!("--window-size={width},{height}"),
            &format!("--user-data-dir={profile}"),
        ];
        let options = json!({ "args": arguments, "perfLoggingPrefs": { "enableNetwork": true } });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } });
        let created = browser.send("", &wanted);
        let id = created["sessionId"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned();
        browser.session = format!("{}/{id}", browser.session);
        Some(browser)
    }

    /// Loads a file, and waits until it is loaded.
    pub(crate) fn open(&self, file: &Path) {
        // The requests of a new tab's page are not those of the loaded page.
        self.send("/url", &json!({ "url": "about:blank" }));
        self.take_requests();
        self.send("/url", &json!({ "url": format!("file://{}", file.display()) }));
    }

    /// Runs a function's body in the page, and returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.send("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true; fails when it is not within a minute.
    pub(crate) fn wait_for(&self, expression: &str) {
        super::system::wait_within(Duration::from_secs(60), expression, || {
            self.run(&format!("return !!({expression})")) == json!(true)
        });
    }

    /// Clicks on the middle of an element, as a mouse does.
    pub(crate) fn click(&self, selector: &str) {
        let id = self.element(selector);
        self.send(&format!("/element/{id}/click"), &json!({}));
    }

    /// Types into an element.
    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        let id = self.element(selector);
        self.send(&format!("/element/{id}/value"), &json!({ "text": text }));
    }

    /// Presses a key, wherever the focus is.
    pub(crate) fn press(&self, key: &str) {
        let strokes = ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key }));
        let keys = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        self.send("/actions", &json!({ "actions": [keys] }));
    }

    /// Chooses light or dark, or the medium `print`.
    pub(crate) fn emulate(&self, media: &str, scheme: &str) {
        let features = [json!({ "name": "prefers-color-scheme", "value": scheme })];
        let params = json!({ "media": media, "features": features });
        self.send(
            "/goog/cdp/execute",
            &json!({ "cmd": "Emulation.setEmulatedMedia", "params": params }),
        );
    }

    /// Returns the page on paper, as a PDF.
    pub(crate) fn print(&self) -> Vec<u8> {
        decode(&self.send("/print", &json!({ "background": true })))
    }

    /// Keeps a picture of the window in `target/screenshots`.
    pub(crate) fn keep_screenshot(&self, name: &str) -> PathBuf {
        let path = artefacts().join(format!("{name}.png"));
        fs::write(&path, decode(&self.get("/screenshot"))).unwrap();
        path
    }

    /// Returns the messages of the browser since it was last asked: errors of scripts, refused loads.
    pub(crate) fn take_messages(&self) -> Vec<String> {
        let log = self.send("/se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().unwrap().iter();
        entries.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the addresses that were requested since it was last asked.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        let log = self.send("/se/log", &json!({ "type": "performance" }));
        let entries = log.as_array().unwrap().iter();
        let request = |entry: &Value| {
            let event: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &event["message"];
            let is_request = message["method"] == "Network.requestWillBeSent";
            is_request.then(|| message["params"]["request"]["url"].as_str().map(str::to_owned))?
        };
        entries.filter_map(request).collect()
    }

    fn element(&self, selector: &str) -> String {
        let found = self.send("/element", &json!({ "using": "css selector", "value": selector }));
        let id = found.as_object().and_then(|found| found.values().next()?.as_str());
        id.unwrap_or_else(|| panic!("{selector}: {found}")).to_owned()
    }

    fn send(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.session);
        let answer = self.agent.post(&url).send(body.to_string()).unwrap();
        read(answer)
    }

    fn get(&self, path: &str) -> Value {
        read(self.agent.get(format!("{}{path}", self.session)).call().unwrap())
    }
}

/// Returns the folder for files that a test keeps for inspection.
pub(crate) fn artefacts() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("screenshots");
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn read(mut answer: ureq::http::Response<ureq::Body>) -> Value {
    let text = answer.body_mut().with_config().limit(100 << 20).read_to_string().unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap();
    assert!(answer.status().is_success(), "{}", value["value"]["message"]);
    value["value"].take()
}

fn decode(value: &Value) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap()).unwrap()
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of the session ends the browser.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
