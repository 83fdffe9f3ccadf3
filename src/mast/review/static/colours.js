/** From loudness to colour. Anchors of each map are evenly spaced from quiet to loud. */

const MAPS = {
  magma: "000004 150e37 3b0f70 641a80 8c2981 b73779 de4968 f7705c fe9f6d fecf92 fcfdbf",
  viridis: "440154 482475 414487 355f8d 2a788e 21918c 22a884 44bf70 7ad151 bddf26 fde725",
  grey: "000000 ffffff",
  ink: "ffffff d8dadd 9da3aa 5a616b 23272e 000000",
};

/** Loudness of the server's grey tiles: level 0 is FLOOR_DB, level 255 is FLOOR_DB + RANGE_DB. */
export const FLOOR_DB = -120;
export const RANGE_DB = 120;

const MIDDLE_DB = -70; // the quietest colour at gain 0
const AUTO_RANGE_DB = 25; // a call 6 dB above the noise is seen; the tops of loud ones are all bright then

/** The floor that a gain in dB stands for. */
export const floorOf = (gain_db) => MIDDLE_DB - gain_db;
export const gainOf = (floor_db) => MIDDLE_DB - floor_db;

const channels = (hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));

/**
 * Colour of each of the 256 levels, as little-endian RGBA words for a canvas.
 * @param {{floor_db: number, range_db: number, colours: string}} look
 */
export function palette({ floor_db, range_db, colours }) {
  const anchors = (MAPS[colours] || MAPS.magma).split(" ").map(channels);
  const words = new Uint32Array(256);
  for (let level = 0; level < 256; level++) {
    const loudness_db = FLOOR_DB + (level / 255) * RANGE_DB;
    const share = Math.min(1, Math.max(0, (loudness_db - floor_db) / range_db));
    const place = share * (anchors.length - 1);
    const below = Math.min(anchors.length - 2, Math.floor(place));
    const [r, g, b] = anchors[below].map((v, i) => Math.round(v + (place - below) * (anchors[below + 1][i] - v)));
    words[level] = (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return words;
}

/** The quietest colour, for what has not been drawn yet. */
export const backgroundOf = (colours) => `#${(MAPS[colours] || MAPS.magma).split(" ")[0]}`;

/**
 * Gain and contrast that show the sound in these tiles: noise dark, faint calls well above it.
 * @param {Iterable<Uint8Array>} tiles levels of the tiles in view
 * @returns {{floor_db: number, range_db: number}|null} null where there is no sound at all
 */
export function autoLook(tiles) {
  const counts = new Float64Array(256);
  for (const levels of tiles) for (let i = 0; i < levels.length; i += 7) counts[levels[i]]++;
  counts[0] = 0; // digital silence says nothing about the noise
  const total = counts.reduce((sum, n) => sum + n, 0);
  if (!total) return null;
  let seen = 0;
  const middle = counts.findIndex((n) => (seen += n) >= total / 2); // most of a recording is noise
  return { floor_db: FLOOR_DB + (middle / 255) * RANGE_DB - 2, range_db: AUTO_RANGE_DB };
}

/** Colours of boxes; each status also differs in line or sign, so that colour is never all there is. */
export const STATUS = {
  open: { line: "#ffd166", dash: [], sign: "" },
  accepted: { line: "#5be38f", dash: [], sign: "✓ " },
  rejected: { line: "#ff7b72", dash: [4, 4], sign: "✕ " },
};
const BY_LEARNER = {
  accepted: { ...STATUS.accepted, dash: [1, 3], sign: "(✓) " },
  rejected: { ...STATUS.rejected, dash: [1, 3], sign: "(✕) " },
};

/** How the box of an event is drawn: dotted and with a sign in brackets where only the learner has decided. */
export const boxStyle = (event) =>
  (event.status === "open" && BY_LEARNER[event.learned?.status]) || STATUS[event.status] || STATUS.open;
