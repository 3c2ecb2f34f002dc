"""Compression of record batch bodies: none, zstd, or an lz4 frame.

The libraries are optional (``pip install 'fencelog[compression]'``); without them uncompressed
batches still work and compressed ones are refused by name. Decompression is bounded by the size
that the batch header promises, so a few bytes cannot ask for gigabytes.
"""

from __future__ import annotations

from fencelog.ledgers.errors import ErrorCode, FencelogError

CODEC_NONE = 0
CODEC_ZSTD = 1
CODEC_LZ4 = 2

_MAX_WINDOW_BYTES = 8 * 1024 * 1024


def compress(codec: int, body: bytes) -> bytes:
    """Compress a body. Raises FencelogError(BAD_REQUEST) for a codec that is not known or not
    installed."""
    try:
        if codec == CODEC_ZSTD:
            import zstandard

            return bytes(zstandard.ZstdCompressor().compress(body))
        if codec == CODEC_LZ4:
            import lz4.frame

            return bytes(lz4.frame.compress(body))
    except ImportError:
        raise _not_installed(codec) from None
    raise FencelogError(ErrorCode.BAD_REQUEST, f"record batch codec {codec} is not known")


def decompress(codec: int, stored: memoryview, size: int) -> bytes:
    """Decompress a body to exactly ``size`` bytes. Raises FencelogError(BAD_REQUEST)."""
    try:
        if codec == CODEC_ZSTD:
            body = _zstd(stored, size)
        elif codec == CODEC_LZ4:
            body = _lz4(stored, size)
        else:
            raise FencelogError(ErrorCode.BAD_REQUEST, f"record batch codec {codec} is not known")
    except ImportError:
        raise _not_installed(codec) from None
    if len(body) != size:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"record batch body unpacks to other than {size} bytes"
        )
    return body


def _zstd(stored: memoryview, size: int) -> bytes:
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    try:
        # A stream reads up to the size requested; the one-shot call trusts the frame's own size.
        with unpacker.stream_reader(stored) as stream:
            return bytes(stream.read(size + 1))
    except zstandard.ZstdError as error:
        raise _damaged(error) from None


def _lz4(stored: memoryview, size: int) -> bytes:
    import lz4.frame

    try:
        return bytes(lz4.frame.LZ4FrameDecompressor().decompress(stored, max_length=size + 1))
    except RuntimeError as error:
        raise _damaged(error) from None


def _damaged(error: Exception) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, f"record batch body does not unpack: {error}")


def _not_installed(codec: int) -> FencelogError:
    return FencelogError(
        ErrorCode.BAD_REQUEST,
        f"record batch codec {codec} is not installed here (extra 'compression')",
    )
