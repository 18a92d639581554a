"""The hash algorithms of BMv2 by name: functions of hashes.h, and CRCs with their parameters.

CRC names and parameters are those that behavioral-model takes over from crcmod's predefined list.
"""

from __future__ import annotations

from dataclasses import dataclass

FUNCTIONS = {
    "csum16": "p4_hash_csum16",
    "cksum16": "p4_hash_csum16",
    "xor16": "p4_hash_xor16",
    "xor32": "p4_hash_xor32",
    "identity": "p4_hash_identity",
    "xxh64": "p4_hash_xxh64",
}
SUMS = frozenset({"csum16", "cksum16"})
"""Those that are a ones' complement sum of 16-bit words (RFC 1071)."""


@dataclass(frozen=True)
class Crc:
    """Polynomial without its top bit; `reflected` goes for data and remainder alike."""

    width: int
    polynomial: int
    initial: int
    final_xor: int
    reflected: bool


CRCS = {
    "crc16": Crc(16, 0x8005, 0, 0, True),
    "crc32": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True),
    "crcCCITT": Crc(16, 0x1021, 0xFFFF, 0, False),
    "crc8_custom": Crc(8, 0x07, 0, 0, False),
    "crc16_custom": Crc(16, 0x8005, 0, 0, True),
    "crc32_custom": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True),
    "crc64_custom": Crc(64, 0x1B, 0, 0, True),
    "crc_8": Crc(8, 0x07, 0, 0, False),
    "crc_8_darc": Crc(8, 0x39, 0, 0, True),
    "crc_8_i_code": Crc(8, 0x1D, 0xFD, 0, False),
    "crc_8_itu": Crc(8, 0x07, 0, 0x55, False),
    "crc_8_maxim": Crc(8, 0x31, 0, 0, True),
    "crc_8_rohc": Crc(8, 0x07, 0xFF, 0, True),
    "crc_8_wcdma": Crc(8, 0x9B, 0, 0, True),
    "crc_16": Crc(16, 0x8005, 0, 0, True),
    "crc_16_buypass": Crc(16, 0x8005, 0, 0, False),
    "crc_16_dds_110": Crc(16, 0x8005, 0x800D, 0, False),
    "crc_16_dect": Crc(16, 0x0589, 0, 0x0001, False),
    "crc_16_dnp": Crc(16, 0x3D65, 0, 0xFFFF, True),
    "crc_16_en_13757": Crc(16, 0x3D65, 0, 0xFFFF, False),
    "crc_16_genibus": Crc(16, 0x1021, 0xFFFF, 0xFFFF, False),
    "crc_16_maxim": Crc(16, 0x8005, 0, 0xFFFF, True),
    "crc_16_mcrf4xx": Crc(16, 0x1021, 0xFFFF, 0, True),
    "crc_16_riello": Crc(16, 0x1021, 0xB2AA, 0, True),
    "crc_16_t10_dif": Crc(16, 0x8BB7, 0, 0, False),
    "crc_16_teledisk": Crc(16, 0xA097, 0, 0, False),
    "crc_16_usb": Crc(16, 0x8005, 0xFFFF, 0xFFFF, True),
    "x_25": Crc(16, 0x1021, 0xFFFF, 0xFFFF, True),
    "xmodem": Crc(16, 0x1021, 0, 0, False),
    "modbus": Crc(16, 0x8005, 0xFFFF, 0, True),
    "kermit": Crc(16, 0x1021, 0, 0, True),
    "crc_ccitt_false": Crc(16, 0x1021, 0xFFFF, 0, False),
    "crc_aug_ccitt": Crc(16, 0x1021, 0x1D0F, 0, False),
    "crc_32": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True),
    "crc_32_bzip2": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, False),
    "crc_32c": Crc(32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, True),
    "crc_32d": Crc(32, 0xA833982B, 0xFFFFFFFF, 0xFFFFFFFF, True),
    "crc_32_mpeg": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0, False),
    "posix": Crc(32, 0x04C11DB7, 0, 0xFFFFFFFF, False),
    "crc_32q": Crc(32, 0x814141AB, 0, 0, False),
    "jamcrc": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0, True),
    "xfer": Crc(32, 0x000000AF, 0, 0, False),
    "crc_64": Crc(64, 0x1B, 0, 0, True),
    "crc_64_we": Crc(64, 0x42F0E1EBA9EA3693, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, False),
    "crc_64_jones": Crc(64, 0xAD93D23594C935A9, 0xFFFFFFFFFFFFFFFF, 0, True),
}


def custom_crc(name: str) -> Crc | None:
    """Return a CRC from a name such as `poly_0x18005_init_0xffff_not_rev_xout_0x0`; None if the name has another
    form."""
    words = iter(name.split("_"))
    values = {"poly": "", "init": "0", "xout": "0"}
    reflected = True
    for word in words:
        if word in values:
            values[word] = next(words, "")
        elif word == "not" and next(words, "") == "rev":
            reflected = False
        else:
            return None
    poly = values["poly"]
    if not poly.startswith("0x1") or (len(poly) - 3) * 4 not in (8, 16, 32, 64):
        return None
    try:
        numbers = [int(values[k], 16) for k in ("init", "xout")]
        return Crc((len(poly) - 3) * 4, int(poly[3:], 16), numbers[0], numbers[1], reflected)
    except ValueError:
        return None
