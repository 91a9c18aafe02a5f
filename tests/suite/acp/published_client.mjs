// A client made with the library of the protocol's authors, which validates each message.
// Arguments: the library, the agent, its arguments.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [library, program, ...args] = process.argv.slice(2);
const acp = await import(pathToFileURL(library));
const agent = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const folder = process.cwd();

let updates = [];
const kinds = () => updates.map((it) => it.sessionUpdate).filter((it) => it !== "usage_update" && it !== "available_commands_update");
const text = (kind) => updates.filter((it) => it.sessionUpdate === kind).map((it) => it.content.text).join("");

const editor = acp
  .client({ name: "test" })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    const [diff] = params.toolCall.content;
    const ids = params.options.map((option) => option.optionId);
    console.log(`permission ${diff.path.split("/").pop()}: ${ids}`);
    return { outcome: { outcome: "selected", optionId: "once" } };
  })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    updates.push(params.update);
  });

await editor.connectWith(stream, async (context) => {
  const { agent: names } = acp.methods;
  const prompt = async (sessionId, text) => {
    updates = [];
    const done = await context.request(names.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
    console.log(`stop ${done.stopReason}`);
  };
  const begun = await context.request(names.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
  console.log(`protocol ${begun.protocolVersion}`);
  const { sessionId } = await context.request(names.session.new, { cwd: folder, mcpServers: [] });
  await prompt(sessionId, "Write a file.");
  console.log(`thought ${text("agent_thought_chunk")}`);
  console.log(`text ${text("agent_message_chunk")}`);
  const calls = updates.filter((it) => it.toolCallId).map((it) => `${it.toolCallId}:${it.status ?? "pending"}`);
  console.log(`calls ${calls.join(" ")}`);
  const { sessions } = await context.request(names.session.list, { cwd: folder });
  console.log(`listed ${sessions.length}`);
  updates = [];
  await context.request(names.session.load, { sessionId, cwd: folder, mcpServers: [] });
  console.log(`loaded ${kinds()}`);
  await prompt(sessionId, "Are you there?");
  console.log(`text ${text("agent_message_chunk")}`);
});
agent.stdin.end();
agent.on("exit", (code) => process.exit(code ?? 1));
