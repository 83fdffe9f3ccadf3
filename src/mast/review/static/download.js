/** Files that the browser keeps. */

import { element } from "./dom.js";

/** Save what the server answered under the name it gave, or another. */
export async function saveAnswer(answer, name) {
  const address = URL.createObjectURL(await answer.blob());
  const given = /filename="?([^";]+)/.exec(answer.headers.get("Content-Disposition") || "");
  element("a", { href: address, download: given ? given[1] : name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
