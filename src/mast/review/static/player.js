/**
 * Playing: the server cuts, filters and slows the sound, this file joins the pieces without a gap.
 * A long stretch comes in short clips, each fetched while the one before plays, so nothing waits for the whole.
 */

import * as api from "./api.js";

const FIRST_S = 3; // seconds heard of the first clip: short, so that it begins soon
const NEXT_S = 12;
const AHEAD_S = 6; // fetch the next clip when less than this is left
const FADE_S = 0.004; // the server fades clips in and out over this: pieces overlap by it, and the fades add up to one
const MIN_RATE = 8000; // browsers refuse buffers of very low rates: play those slowed down instead

export class Player {
  /** @param {{moved: (s: number|null) => void, stopped: () => void, failed: (error: Error) => void}} hooks */
  constructor(hooks) {
    this.hooks = hooks;
    this.sound = null; // the AudioContext, made at the first key press
    this.turn = null; // what is being played
    this.peak = 0; // the loudest sample sent to the speakers in this turn
    this.volume_db = 0;
  }

  get playing() {
    return this.turn !== null;
  }

  setVolume(volume_db) {
    this.volume_db = volume_db;
    if (this.sound) this.volume.gain.value = 10 ** (volume_db / 20);
  }

  prepare() {
    if (!this.sound) {
      this.sound = new AudioContext();
      this.volume = this.sound.createGain();
      const limiter = this.sound.createDynamicsCompressor(); // loud calls must not hurt when the gain is up
      limiter.threshold.value = -3;
      limiter.ratio.value = 20;
      limiter.attack.value = 0.002;
      this.meter = this.sound.createAnalyser();
      this.meter.fftSize = 2048;
      this.volume.connect(limiter).connect(this.meter).connect(this.sound.destination);
      this.setVolume(this.volume_db);
    }
    return this.sound.resume();
  }

  /**
   * @param {{recording_id: number, start_s: number, end_s: number, speed: number}} wanted with `low_hz` and `high_hz`,
   *   only that band
   */
  async play(wanted) {
    this.stop();
    const turn = { wanted, pieces: [], sources: [], abort: new AbortController(), next_s: wanted.start_s, at: 0 };
    this.turn = turn;
    this.peak = 0;
    try {
      await this.prepare();
      while (this.turn === turn && turn.next_s < wanted.end_s - 1e-6) {
        await this.fetchPiece(turn);
        while (this.turn === turn && turn.at - this.sound.currentTime > AHEAD_S) await pause(200);
      }
      turn.complete = true;
    } catch (error) {
      if (this.turn !== turn || error.name === "AbortError") return;
      this.stop();
      this.hooks.failed(error);
    }
  }

  async fetchPiece(turn) {
    const { recording_id, end_s, low_hz, high_hz, speed } = turn.wanted;
    const length = (turn.pieces.length ? NEXT_S : FIRST_S) * Math.min(1, speed);
    const overlap_s = turn.pieces.length ? FADE_S : 0;
    const start_s = turn.next_s - overlap_s;
    const until_s = end_s - start_s < 1.5 * length ? end_s : start_s + length;
    const bytes = await api.clip(recording_id, { start_s, end_s: until_s, low_hz, high_hz, speed }, turn.abort.signal);
    const buffer = await this.decode(bytes);
    if (this.turn !== turn) return;
    const source = this.sound.createBufferSource();
    source.buffer = buffer.sound;
    source.playbackRate.value = buffer.rate;
    source.connect(this.volume);
    const begin = Math.max(turn.at - overlap_s / speed, this.sound.currentTime + 0.05);
    const lasts = buffer.sound.duration / buffer.rate;
    source.start(begin);
    turn.pieces.push({ begin, end: begin + lasts, start_s, end_s: until_s });
    turn.sources.push(source);
    Object.assign(turn, { at: begin + lasts, next_s: until_s });
    if (turn.pieces.length === 1) this.follow(turn);
  }

  /** 16-bit WAV as a buffer; anything else is left to the browser. */
  async decode(bytes) {
    const wav = readWav(bytes);
    if (!wav) return { sound: await this.sound.decodeAudioData(bytes), rate: 1 };
    const times = Math.max(1, Math.ceil(MIN_RATE / wav.sample_rate));
    const sound = this.sound.createBuffer(1, Math.max(1, wav.samples.length), wav.sample_rate * times);
    sound.copyToChannel(wav.samples, 0);
    return { sound, rate: 1 / times };
  }

  /** Move the playhead and watch the level until the end. */
  follow(turn) {
    const heard = new Float32Array(this.meter.fftSize);
    const tick = () => {
      if (this.turn !== turn) return;
      const now = this.sound.currentTime;
      this.meter.getFloatTimeDomainData(heard);
      for (const value of heard) this.peak = Math.max(this.peak, Math.abs(value));
      if (turn.complete && now > turn.at) return this.stop();
      const piece = turn.pieces.find((p) => now < p.end) || turn.pieces[turn.pieces.length - 1];
      const share = Math.min(1, Math.max(0, (now - piece.begin) / (piece.end - piece.begin)));
      this.hooks.moved(piece.start_s + share * (piece.end_s - piece.start_s));
      requestAnimationFrame(tick);
    };
    tick();
  }

  stop() {
    const turn = this.turn;
    if (!turn) return;
    this.turn = null;
    turn.abort.abort();
    for (const source of turn.sources) source.stop();
    this.hooks.moved(null);
    this.hooks.stopped();
  }
}

const pause = (wait_ms) => new Promise((resolve) => setTimeout(resolve, wait_ms));

/** @returns {{samples: Float32Array, sample_rate: number}|null} null where it is not 16-bit mono PCM */
export function readWav(bytes) {
  const view = new DataView(bytes);
  const word = (at) => String.fromCharCode(...new Uint8Array(bytes, at, 4));
  if (bytes.byteLength < 12 || word(0) !== "RIFF" || word(8) !== "WAVE") return null;
  let sample_rate = 0;
  for (let at = 12; at + 8 <= bytes.byteLength; ) {
    const name = word(at);
    const size = view.getUint32(at + 4, true);
    if (name === "fmt ") {
      const plain = view.getUint16(at + 8, true) === 1 && view.getUint16(
        at + 10,
        true,
      ) === 1 && view.getUint16(at + 22, true) === 16;
      if (!plain) return null;
      sample_rate = view.getUint32(at + 12, true);
    } else if (name === "data" && sample_rate) {
      const count = Math.floor(Math.min(size, bytes.byteLength - at - 8) / 2);
      const samples = new Float32Array(count);
      for (let i = 0; i < count; i++) samples[i] = view.getInt16(at + 8 + 2 * i, true) / 32768;
      return { samples, sample_rate };
    }
    at += 8 + size + (size % 2);
  }
  return null;
}
