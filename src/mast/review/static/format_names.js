/** What annotation formats are called. */

export const FORMAT_NAMES = {
  csv: "CSV (boxes.csv, for mast train)",
  parquet: "Parquet",
  raven: "Raven selection tables",
  audacity: "Audacity labels",
  kaleidoscope: "Kaleidoscope",
  aoef: "AOEF (whombat)",
  coco: "COCO",
  yolo: "YOLO",
  birdeep: "BIRDeep",
};
