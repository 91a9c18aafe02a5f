//! Request settings besides the conversation, and models that the user defines.

use crate::kit::chat;
use crate::kit::cli::{CliFixture, wait_for_exit};
use crate::kit::server::Server;

#[test]
fn options_and_headers_are_sent_with_each_request() {
    let server = Server::new([chat::text("Done.")]);
    let sets = ["--set", "llm.options.temperature=0.2", "--set", "llm.headers.X-Team=build"];
    let done = CliFixture::new().run_with_server(&server, &sets);
    assert_eq!(done.code, 0, "{}", done.err);
    let request = &server.requests()[0];
    assert_eq!(request.json()["temperature"], 0.2);
    assert_eq!(request.header("x-team"), Some("build"));
}

#[test]
fn a_reserved_option_ends_the_run_before_it_begins() {
    let server = Server::new([chat::text("Done.")]);
    for set in ["llm.options.model=other", "llm.headers.authorization=x"] {
        let done = CliFixture::new().run_with_server(&server, &["--set", set]);
        assert_eq!(done.code, 3, "{}", done.err);
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn an_effort_is_sent_and_reported() {
    let server = Server::new([chat::text("Done.")]);
    let done = CliFixture::new().run_with_server(&server, &["--effort", "low", "--json"]);
    assert_eq!(done.json()["effort"], "low");
    assert_eq!(server.requests()[0].json()["reasoning_effort"], "low");
}

#[test]
fn an_effort_that_the_model_does_not_have_is_refused() {
    let done = CliFixture::new()
        .command(&["run", "Do it.", "--model", "openai/gpt-4o", "--effort", "high"])
        .env("OPENAI_API_KEY", "sk-test-canary")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{error}");
    let cause = "--effort: `llm.effort`: openai/gpt-4o: the model has no setting for how much it";
    assert!(error.contains(cause), "{error}");
}

#[test]
fn a_resume_with_a_model_without_the_effort_leaves_it_out() {
    let server = Server::repeating([chat::text("Done.")]);
    let fixture = CliFixture::new();
    let base = server.url("/v1");
    let define = format!(
        "[models.most]\nmodel = \"openai-chat/m1\"\napi_base = \"{base}\"\nefforts = [\"low\", \"high\"]\n\
         [models.none]\nmodel = \"openai-chat/m2\"\napi_base = \"{base}\"\nefforts = []\n"
    );
    fixture
        .write("own.toml", &define)
        .write("high.toml", &format!("llm.effort = 'high'\n{define}"));
    let resume =
        |args: &[&str]| fixture.run(&[&["resume", "last", "Go on.", "--json"], args].concat());
    for (config, effort) in [("own.toml", &["--effort", "high"][..]), ("high.toml", &[])] {
        let start = ["run", "Do it.", "--json", "--model", "most", "--config", config];
        let done = fixture.run(&[&start[..], effort].concat());
        assert_eq!((done.code, done.json()["effort"].as_str()), (0, Some("high")), "{}", done.err);
        let done = resume(&["--model", "none"]);
        assert_eq!((done.code, done.json().get("effort")), (0, None), "{}", done.err);
        let warning = "openai-chat/m2 has no effort 'high' (";
        assert!(done.err.contains(warning), "{}", done.err);
        // Also with the stored model, and until another effort is given.
        assert_eq!(resume(&[]).code, 0);
        let refused = resume(&["--effort", "low"]);
        assert_eq!(refused.code, 3, "{}", refused.err);
        let done = resume(&["--effort", "default"]);
        assert!(done.code == 0 && !done.err.contains("has no effort"), "{}", done.err);
    }
    let efforts =
        server.requests().into_iter().map(|request| request.json()["reasoning_effort"].clone());
    let sent: Vec<_> = efforts.filter(|effort| !effort.is_null()).collect();
    assert_eq!(sent, ["high", "high"]);
}

#[test]
fn azure_gets_the_key_in_its_header_below_the_address_of_the_resource() {
    let server = Server::new([chat::text("Done.")]);
    let done = CliFixture::new()
        .command(&["run", "Do it.", "--model", "azure-chat/my-deployment"])
        .env("AZURE_OPENAI_ENDPOINT", server.url("/"))
        .env("AZURE_OPENAI_API_KEY", "canary-of-azure")
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    let request = &server.requests()[0];
    assert_eq!(request.path, "/openai/v1/chat/completions");
    assert_eq!(request.header("api-key"), Some("canary-of-azure"));
    assert_eq!(request.header("authorization"), None);
    assert_eq!(request.json()["model"], "my-deployment");
}

#[test]
fn azure_without_an_address_is_refused() {
    let done = CliFixture::new()
        .command(&["run", "Do it.", "--model", "azure/my-deployment"])
        .env("AZURE_OPENAI_API_KEY", "canary-of-azure")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{error}");
    assert!(error.contains("set AZURE_OPENAI_ENDPOINT"), "{error}");
}

#[test]
fn a_wrong_address_of_azure_is_refused_before_any_request() {
    for (address, expected) in [
        ("my-resource", "has no domain"),
        ("https://openai.azure.com", "has no name of a resource"),
        ("https://portal.azure.com/#home", "is a web site for people"),
        (
            "https://my.openai.azure.com/openai/deployments/m/chat/completions?api-version=2024-10-21",
            "has the path of a deployment",
        ),
        ("https://my.openai.azure.com/openai/v1/responses", "has the path of a request"),
    ] {
        let done = CliFixture::new()
            .command(&["run", "Do it.", "--model", "azure/my-deployment"])
            .env("AZURE_OPENAI_ENDPOINT", address)
            .env("AZURE_OPENAI_API_KEY", "canary-of-azure")
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(3), "{error}");
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("such as https://RESOURCE.openai.azure.com"), "{error}");
    }
}

#[test]
fn a_model_of_the_user_has_its_address_key_price_and_efforts() {
    let server = Server::new([chat::text("Done.")]);
    let fixture = CliFixture::new();
    let define = format!(
        "[models.mine]\nmodel = \"openai-chat/m1\"\napi_base = \"{}\"\napi_key_env = \"MY_KEY\"\n\
         window = 50000\nprice = {{ input = 1.0, output = 4.0 }}\nefforts = [\"low\", \"ultra\"]\n\
         output_field = \"max_completion_tokens\"\n",
        server.url("/v1")
    );
    fixture.write("own.toml", &define);
    let run = |args: &[&str]| {
        let common = ["--config", "own.toml"];
        let mut command = fixture.command(&[args, &common].concat());
        wait_for_exit(command.env("MY_KEY", "canary-of-mine").spawn().unwrap())
    };
    let task = ["run", "Do it.", "--model", "mine", "--budget", "1", "--json"];
    let limit = ["--set", "llm.max_output_tokens=100"];
    let done = run(&[&task[..], &limit, &["--effort", "max"]].concat());
    assert_eq!((done.code, done.json()["model"].as_str()), (0, Some("openai-chat/m1")));
    assert!(done.json()["cost"].as_f64().is_some_and(|cost| cost > 0.0));
    let request = &server.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer canary-of-mine"));
    assert_eq!(request.json()["reasoning_effort"], "ultra");
    assert_eq!(request.json()["max_completion_tokens"], 100);
    assert_eq!(run(&[&task[..], &["--effort", "high"]].concat()).code, 3);

    let listed = run(&["models", "--json"]).json();
    let (mine, rest) = listed.as_array().unwrap().split_first().unwrap();
    assert_eq!((&mine["name"], &mine["window"]), (&"mine".into(), &50_000.into()));
    assert_eq!(mine["efforts"], serde_json::json!(["low", "max"]));
    let known = rest.iter().find(|model| model["model"] == "openai/gpt-4o").unwrap();
    assert_eq!(
        (&known["price"]["input"], &known["efforts"]),
        (&2.5.into(), &serde_json::json!([]))
    );
    let anthropic = run(&["models", "--provider", "anthropic"]).out;
    assert!(anthropic.contains("anthropic/claude-opus-5-5") && !anthropic.contains("gpt"));
    let unknown = run(&["models", "--provider", "foo"]);
    let notice = "unknown provider 'foo'\n  known providers: openai, ";
    assert!(unknown.code == 3 && unknown.err.contains(notice), "{}", unknown.err);
}

#[test]
fn a_wrong_definition_of_a_model_is_named_and_hides_no_other() {
    let fixture = CliFixture::new();
    fixture.write(
        "own.toml",
        "[models.good]\nmodel = \"openai-chat/m1\"\n[models.bad]\nmodel = \"nowhere/m\"\n\
         [models.empty]\nwindow = 50000\n",
    );
    let run = |args: &[&str]| fixture.run(&[args, &["--config", "own.toml"]].concat());
    let listed = run(&["models"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    assert!(listed.out.contains("good (openai-chat/m1)") && listed.out.contains("openai/gpt-5.5"));
    for shown in [listed, run(&["config", "check"])] {
        let expected = "own.toml:4:9: `models.bad`: unknown provider 'nowhere' in 'nowhere/m'";
        assert!(shown.err.contains(expected), "{}", shown.err);
        assert!(shown.err.contains("own.toml:6:10: models.empty has no `model`"), "{}", shown.err);
    }
    assert_eq!(run(&["config", "check"]).code, 3);
    let started = run(&["run", "Do it.", "--model", "bad"]);
    assert!(started.code == 3 && started.err.contains("`models.bad`: unknown provider"));
}

#[test]
fn a_provider_without_models_in_the_table_is_explained() {
    let fixture = CliFixture::new();
    for (provider, expected) in [
        ("bedrock", "the models of anthropic with"),
        ("vertex", "the models of anthropic, gemini with"),
        ("azure", "the models of openai with"),
        ("openai-chat", "the models of openai with"),
        ("ollama", "architect models --online --provider ollama"),
        ("llama-cpp", "[models.NAME]"),
    ] {
        let listed = fixture.run(&["models", "--provider", provider]);
        let note = format!("The table has no models of {provider} itself.");
        assert!(listed.out.contains(&note) && listed.out.contains(expected), "{}", listed.out);
    }
    assert!(!fixture.run(&["models", "--provider", "gemini"]).out.contains("no models of"));
}
