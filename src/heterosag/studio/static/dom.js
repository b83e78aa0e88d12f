// Elements and requests. Text goes in as text, never as markup.

export const find = (id) => document.getElementById(id);

export function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

export async function ask(path, form, signal) {
  const request = form === undefined ? {} : {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(form),
  };
  const response = await fetch(path, { ...request, signal });
  const answer = await response.json();
  signal?.throwIfAborted();
  if (!response.ok) throw Object.assign(new Error(answer.error), { field: answer.field });
  return answer;
}

/** Put text on the clipboard, and say so on the button for a moment, or that the browser does not allow it. */
export async function copy(button, text) {
  button.dataset.name ??= button.textContent;
  button.textContent = await navigator.clipboard.writeText(text).then(() => "Copied", () => "Not allowed");
  setTimeout(() => { button.textContent = button.dataset.name; }, 1500);
}
