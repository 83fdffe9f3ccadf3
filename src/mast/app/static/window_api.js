/** The page's requests to the server. */

import { address, call, json } from "../static/request.js";

export const start = () => json("GET", "start");
export const folders = (path) => json("GET", "folders", { query: { path } });
export const contents = (path, again = false) => json("GET", "contents", { query: { path, again } });
export const work = (path) => json("GET", "work", { query: { path } });
export const find = (wanted) => json("POST", "find", { body: wanted });
export const stop = (folder) => json("POST", "stop", { body: { folder } });
export const resume = (folder) => json("POST", "resume", { body: { folder } });
export const summarize = (folder) => json("POST", "summarize", { body: { folder } });
export const adapt = (folder) => json("POST", "adapt", { body: { folder } });
export const learn = (folder, complete) => json("POST", "learn", { body: { folder, complete } });

export const pictureAddress = (path, file) => address("picture", { path, file });
export const pageAddress = (folder, which) => address("page", { folder, which });
export const reviewAddress = (key) => `review/${key}/`;

/** Open the review of a folder on the server; its page then comes at once. */
export const openReview = (key) => json("GET", "session", { base: reviewAddress(key) });
export const exportZip = (key, format) => call("GET", "export", { base: reviewAddress(key), query: { format } });
