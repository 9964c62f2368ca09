// An image of the user: the file, which is sent as it is, and a picture of it, which is small enough to draw.

const SIDE = 1600; // pixels of the picture's longer side
const THUMB = 144;

export async function openPhoto(file, name = file.name) {
  const photo = {file, name: name || "image", leaving: new AbortController(), picture: null};
  try {
    const bitmap = await createImageBitmap(file); // turned as EXIF says
    photo.picture = drawn(bitmap, SIDE);
    photo.small = bitmap.width < 200 && bitmap.height < 200;
    bitmap.close();
  } catch { /* a format that only the server knows, or no image: its answer will say */ }
  return photo;
}

function drawn(source, side) {
  const scale = Math.min(1, side / Math.max(source.width, source.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(source.width * scale));
  canvas.height = Math.max(1, Math.round(source.height * scale));
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(source, 0, 0, canvas.width, canvas.height);
  return canvas;
}

export function thumbnail(photo) {
  if (!photo.picture) return document.createElement("canvas");
  return drawn(photo.picture, THUMB);
}

// The picture into a canvas of the page. Without one, an empty one of the size that the server knows.
export function paint(photo, canvas, size) {
  const [height, width] = photo.picture ? [photo.picture.height, photo.picture.width] : size ?? [3, 4];
  const scale = Math.min(1, SIDE / Math.max(width, height));
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  if (photo.picture) canvas.getContext("2d").drawImage(photo.picture, 0, 0);
  canvas.classList.toggle("pixelated", Boolean(photo.small));
}
