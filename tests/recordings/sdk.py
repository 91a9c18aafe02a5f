"""Writes down what the providers' own SDKs find in the recordings: NAME.sdk.json beside NAME.sse.

Each recording is served on loopback, and read with the SDK's own reader of streams. What it says is kept in the
provider's words; the tests translate. It needs the SDKs, and no key:

    python3 -m venv /tmp/sdk && /tmp/sdk/bin/pip install anthropic openai google-genai
    /tmp/sdk/bin/python tests/recordings/sdk.py
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

import anthropic
import openai
from google import genai

FOLDER = Path(__file__).parent


def serve(stream):
    """Returns a server that answers every request with this stream."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(stream)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def of_anthropic(url):
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    ask = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    with client.messages.stream(**ask) as stream:
        message = stream.get_final_message()
    calls = [b for b in message.content if b.type == "tool_use"]
    return {
        "text": "".join(b.text for b in message.content if b.type == "text"),
        "refusal": message.stop_details.explanation if message.stop_details else "",
        "calls": [{"id": c.id, "name": c.name, "arguments": c.input} for c in calls],
        "stop": message.stop_reason,
        "usage": plain(message.usage),
        "model": message.model,
    }


def of_chat(url):
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    messages = [{"role": "user", "content": "x"}]
    with client.chat.completions.stream(model="m", messages=messages) as stream:
        for _ in stream:
            pass
        completion = stream.current_completion_snapshot
    [choice] = completion.choices
    calls = choice.message.tool_calls or []
    return {
        "text": choice.message.content or "",
        "refusal": choice.message.refusal or "",
        "calls": [
            {"id": c.id, "name": c.function.name, "arguments": parsed(c.function.arguments)}
            for c in calls
        ],
        "stop": choice.finish_reason,
        "usage": plain(completion.usage),
        "model": completion.model,
    }


def of_responses(url):
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    with client.responses.stream(model="m", input="x") as stream:
        for event in stream:
            last = event
    response = last.response
    calls = [item for item in response.output if item.type == "function_call"]
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    why = response.incomplete_details and response.incomplete_details.reason
    return {
        "text": response.output_text,
        "refusal": "".join(part.refusal for part in parts if part.type == "refusal"),
        "calls": [
            {"id": c.call_id, "name": c.name, "arguments": parsed(c.arguments)} for c in calls
        ],
        "stop": why or response.status,
        "usage": plain(response.usage),
        "model": response.model,
    }


def of_gemini(url):
    options = genai.types.HttpOptions(base_url=url)
    client = genai.Client(api_key="none", http_options=options, vertexai=False)
    text, calls, stop, usage, model = "", [], None, None, None
    for chunk in client.models.generate_content_stream(model="m", contents="x"):
        text += chunk.text or ""
        calls += chunk.function_calls or []
        for candidate in chunk.candidates or []:
            stop = candidate.finish_reason or stop
        if chunk.prompt_feedback:
            stop = chunk.prompt_feedback.block_reason or stop
        usage = chunk.usage_metadata or usage
        model = chunk.model_version or model
    return {
        "text": text,
        "calls": [{"id": c.id, "name": c.name, "arguments": c.args} for c in calls],
        "stop": stop and stop.value,
        "usage": plain(usage),
        "model": model,
    }


def plain(usage):
    """Returns the numbers of a usage, without those that the SDK did not find."""
    found = usage.model_dump(mode="json", exclude_none=True)
    return {key: value for key, value in found.items() if isinstance(value, (int, dict))}


def parsed(arguments):
    """Returns what a text of arguments says; none when it is cut off."""
    try:
        return json.loads(arguments)
    except json.JSONDecodeError:
        return None


READERS = {
    "anthropic": ("anthropic", of_anthropic, ""),
    "chat": ("openai", of_chat, "/v1"),
    "responses": ("openai", of_responses, "/v1"),
    "gemini": ("google-genai", of_gemini, ""),
}


def main():
    for wire, (package, read, path) in READERS.items():
        for recording in sorted((FOLDER / wire).glob("*.sse")):
            server = serve(recording.read_bytes())
            found = read(f"http://127.0.0.1:{server.server_port}{path}")
            server.shutdown()
            said = {"sdk": f"{package} {version(package)}", **found}
            text = json.dumps(said, ensure_ascii=False, indent=1)
            recording.with_suffix(".sdk.json").write_text(text + "\n")
            print(recording.relative_to(FOLDER), found["stop"])


main()
