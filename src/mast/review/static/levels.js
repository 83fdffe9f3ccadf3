/** Pictures of loudness: from the server's grey tiles to levels, and from levels to colours. */

let scratch = null;

/**
 * Loudness of each pixel of a grey tile, 0…255; the server draws loud sound dark.
 * @param {Blob} blob
 * @returns {Promise<{levels: Uint8Array, width: number, height: number}>}
 */
export async function readLevels(blob) {
  const picture = await createImageBitmap(blob);
  const { width, height } = picture;
  scratch ||= new OffscreenCanvas(512, 512).getContext("2d", { willReadFrequently: true });
  const { canvas } = scratch;
  if (canvas.width < width || canvas.height < height) {
    canvas.width = Math.max(canvas.width, width);
    canvas.height = Math.max(canvas.height, height);
  }
  scratch.drawImage(picture, 0, 0);
  picture.close();
  const { data } = scratch.getImageData(0, 0, width, height);
  const levels = new Uint8Array(width * height);
  for (let i = 0; i < levels.length; i++) levels[i] = 255 - data[4 * i];
  return { levels, width, height };
}

/** Colour the levels. @param {Uint32Array} words of colours.js's palette */
export function paintLevels(canvas, { levels, width, height }, words) {
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < levels.length; i++) pixels[i] = words[levels[i]];
  canvas.getContext("2d").putImageData(image, 0, 0);
}
