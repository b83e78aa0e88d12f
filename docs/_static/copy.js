// A button on every block of code that copies it: of a console session its commands only, without their prompts.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight")) {
    const kind = block.parentElement.className;
    if (!navigator.clipboard || /highlight-(text|none|mermaid|default)\b/.test(kind)) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(codeOf(block.querySelector("pre").textContent, kind));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }
});

function codeOf(text, kind) {
  if (!kind.includes("highlight-console")) return text;
  const commands = [];
  let inside = false;
  for (const line of text.split("\n")) {
    if (line.startsWith("$ ")) commands.push(line.slice(2));
    else if (inside) commands.push(line);
    else continue;
    inside = line.endsWith("\\");
  }
  return commands.join("\n") + "\n";
}
