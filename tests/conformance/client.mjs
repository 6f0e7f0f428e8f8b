// The official TypeScript client: one session over streamable HTTP. Prints what it got as JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const client = new Client({ name: "typescript", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: "accept", content: { response: "blue" } }));
let changed;
const notified = new Promise((resolve) => (changed = resolve));
client.setNotificationHandler(ToolListChangedNotificationSchema, () => changed());
const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]));
await client.connect(transport);
const progress = [];
const listed = await client.listTools();
const counted = await client.callTool({ name: "test_tool_with_progress", arguments: {} }, undefined, {
  onprogress: (event) => progress.push(event.progress),
});
const asked = await client.callTool({ name: "test_elicitation", arguments: { message: "Which?" } });
const image = await client.callTool({ name: "test_image_content", arguments: {} });
const read = await client.readResource({ uri: "test://template/7/data" });
const prompt = await client.getPrompt({ name: "test_prompt_with_arguments", arguments: { arg1: "a", arg2: "b" } });
await client.callTool({ name: "test_trigger_tool_change", arguments: {} });
await notified;
await transport.terminateSession();
await client.close();
console.log(
  JSON.stringify({
    tools: listed.tools.length,
    progress,
    counted: counted.content[0].text,
    asked: asked.content[0].text,
    image: image.content[0].type,
    read: JSON.parse(read.contents[0].text).id,
    prompt: prompt.messages[0].content.text,
  }),
);
