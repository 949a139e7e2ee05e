"""Edit pycaffe's io.py in place: import scikit-image and SciPy only where they are used, and repair load_image.

Debian 11 ships Caffe's io.py with scikit-image 0.18, where imread() no longer takes `as_grey`:
load_image raises TypeError there. `as_gray` is the present name. Without scikit-image, PIL reads the file.
"""

from __future__ import annotations

import sys
from pathlib import Path

IMREAD = '''\
def _imread(filename, gray):
    """float32 image in [0, 1]; scikit-image where it is installed, else PIL (8- and 16-bit files)."""
    try:
        import skimage
        import skimage.io
        return skimage.img_as_float(skimage.io.imread(filename, as_gray=gray)).astype(np.float32)
    except ImportError:
        from PIL import Image
        img = Image.open(filename)
        if img.mode in ('P', '1', 'CMYK', 'YCbCr'):
            img = img.convert('RGB')
        arr = np.asarray(img)
        arr = arr / (65535. if arr.dtype != np.uint8 else 255.)
        if gray and arr.ndim == 3:                     # as scikit-image: alpha over white, then luminance
            if arr.shape[2] == 4:
                arr = arr[:, :, :3] * arr[:, :, 3:] + (1 - arr[:, :, 3:])
            arr = arr.dot([0.2125, 0.7154, 0.0721]) if arr.shape[2] == 3 else arr[:, :, 0]
        return arr.astype(np.float32)


def load_image('''

EDITS = (
    ("import skimage.io\nfrom scipy.ndimage import zoom\nfrom skimage.transform import resize\n", ""),
    (
        "    img = skimage.img_as_float(skimage.io.imread(filename, as_grey=not color)).astype(np.float32)\n",
        "    img = _imread(filename, not color)\n",
    ),
    (
        "            resized_std = resize(im_std,",
        "            from skimage.transform import resize\n            resized_std = resize(im_std,",
    ),
    ("        resized_im = zoom(im,", "        from scipy.ndimage import zoom\n        resized_im = zoom(im,"),
    ("def load_image(", IMREAD),
)


def patch(text: str) -> str:
    """The text of io.py with every edit made once; SystemExit names an edit whose place is not there once."""
    for old, new in EDITS:
        if text.count(old) != 1:
            sys.exit(f"patch_io: expected exactly one {old[:50]!r}")
        text = text.replace(old, new)
    return text


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(patch(path.read_text()))
