"""Words and categories as numbers: the code that exported files run before the network.

It is written in a small subset of Python that `translation` turns into C and LLVM IR,
and is not run as Python: numbers are unsigned and have 64 bits, the types named below
are pointers, and texts end with a zero. There is no division and no shift by a
variable, which small processors leave to a library.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

Bytes = Sequence[int]
Ints = Sequence[int]
Longs = Sequence[int]
Source = Sequence[int]  # of the type that an input has
Texts = Sequence[Bytes]
Word = MutableSequence[int]  # bytes
Numbers = MutableSequence[int]  # of 64 bits

SPACES, CHARACTERS, WHOLE = 0, 1, 2  # where texts are split


# ---- texts as words ------------------------------------------------------------------


def is_space(letter: int) -> int:
    """Return whether a letter is white space."""
    return (letter == 32) | ((letter >= 9) & (letter <= 13))


def is_punctuation(letter: int) -> int:
    """Return whether a letter is in Python's `string.punctuation`."""
    return (
        ((letter >= 33) & (letter <= 47))
        | ((letter >= 58) & (letter <= 64))
        | ((letter >= 91) & (letter <= 96))
        | ((letter >= 123) & (letter <= 126))
    )


def lowered(letter: int, lower: int) -> int:
    """Return a letter, in lower case if requested."""
    return letter + 32 * (lower & (letter >= 65) & (letter <= 90))


def length_of(text: Bytes) -> int:
    """Return the length of a text."""
    length = 0
    while text[length] != 0:
        length += 1
    return length


def append(word: Word, most: int, length: int, letter: int) -> int:
    """Write a letter if there is room; a word that is too long is merely counted."""
    if length < most:
        word[length] = letter
    return length + 1


def next_word(
    text: Bytes, cursor: Numbers, word: Word, most: int, lower: int, strip: int,
    split: int,
) -> int:  # fmt: skip
    """Append the next word of a text; return whether there is any.

    The cursor has the position in the text, and how long the word is.
    """
    at = cursor[0]
    length = cursor[1]
    found = 0
    more = 1
    while more != 0:
        letter = text[at]
        if letter == 0:
            more = 0
        elif (split == SPACES) & is_space(letter):
            more = 1 - found
            at += more
        elif (split == CHARACTERS) & found & ((letter & 192) != 128):
            more = 0
        else:
            at += 1
            if (strip & is_punctuation(letter)) == 0:
                length = append(word, most, length, lowered(letter, lower))
                found = 1
    cursor[0] = at
    cursor[1] = length
    return found


# ---- words and numbers in a vocabulary -----------------------------------------------


def slot_of(word: Bytes, length: int, mask: int) -> int:
    """Return where a word is looked for first: FNV-1a, its upper bits folded in."""
    number = 14695981039346656037
    i = 0
    while i < length:
        number = (number ^ word[i]) * 1099511628211
        i += 1
    return (number ^ (number >> 32)) & mask


def is_same(word: Bytes, letters: Bytes, start: int, length: int) -> int:
    """Return whether a word is at some position among letters."""
    i = 0
    while i < length and word[i] == letters[start + i]:
        i += 1
    return i == length


def find_word(
    word: Bytes, length: int, slots: Ints, starts: Ints, letters: Bytes, mask: int
) -> int:
    """Return the number of a word in the vocabulary, from 1 on; 0 if it is not there.

    A slot has such a number or 0, and the next one is tried where another word is.
    """
    slot = slot_of(word, length, mask)
    entry = slots[slot]
    while entry != 0:
        start = starts[entry - 1]
        if starts[entry] - start == length and is_same(word, letters, start, length):
            return entry
        slot = (slot + 1) & mask
        entry = slots[slot]
    return 0


def vectorize(
    texts: Texts, rows: int, out: Numbers, size: int, counts: int,
    word: Word, most: int, cursor: Numbers, lower: int, strip: int, split: int,
    widths: Longs, kinds: int,
    slots: Ints, starts: Ints, letters: Bytes, mask: int, values: Longs, unknown: int,
) -> None:  # fmt: skip
    """Write the indices of a text's words, then zeros; or how often each occurs."""
    row = 0
    while row < rows:
        text: Bytes = texts[row]
        base = row * size
        i = 0
        while i < size:
            out[base + i] = 0
            i += 1
        at = 0
        kind = 0
        while kind < kinds:
            start = 0
            more = 1
            while more != 0:
                cursor[0] = start
                cursor[1] = 0
                more = next_word(text, cursor, word, most, lower, strip, split)
                start = cursor[0]
                joined = 1
                while more != 0 and joined < widths[kind]:
                    cursor[1] = append(word, most, cursor[1], 32)
                    more = next_word(text, cursor, word, most, lower, strip, split)
                    joined += 1
                if more != 0:
                    index = unknown
                    if cursor[1] <= most:
                        entry = find_word(word, cursor[1], slots, starts, letters, mask)
                        if entry != 0:
                            index = values[entry - 1]
                    if counts != 0:
                        if index < size:
                            out[base + index] = out[base + index] + 1
                    elif at < size:
                        out[base + at] = index
                        at += 1
                    else:
                        more = 0
            kind += 1
        row += 1


def look_words_up(
    texts: Texts, count: int, out: Numbers,
    slots: Ints, starts: Ints, letters: Bytes, mask: int, values: Longs,
    unknown: int, buckets: int, salted: int, first: int, second: int,
) -> None:  # fmt: skip
    """Write the index of each word."""
    i = 0
    while i < count:
        text: Bytes = texts[i]
        length = length_of(text)
        entry = find_word(text, length, slots, starts, letters, mask)
        if entry != 0:
            out[i] = values[entry - 1]
        elif buckets > 1:
            out[i] = unknown + bucket(text, length, buckets, salted, first, second)
        else:
            out[i] = unknown
        i += 1


def look_numbers_up(
    numbers: Longs, count: int, out: Numbers, keys: Longs, values: Longs, size: int,
    unknown: int, buckets: int, hashed: int, word: Word, salted: int, first: int,
    second: int,
) -> None:  # fmt: skip
    """Write the index of each number; the keys are sorted."""
    i = 0
    while i < count:
        number = numbers[i]
        low = 0
        high = size
        while low < high:
            middle = (low + high) >> 1
            if (keys[middle] ^ (1 << 63)) < (number ^ (1 << 63)):
                low = middle + 1
            else:
                high = middle
        index = unknown
        if low < size and keys[low] == number:
            index = values[low]
        elif buckets > 1 and hashed != 0:
            length = write_decimal(number, word)
            index = unknown + bucket(word, length, buckets, salted, first, second)
        elif buckets > 1:
            index = unknown + signed_remainder(number, buckets)
        out[i] = index
        i += 1


def as_whole(source: Source, count: int, out: Numbers) -> None:
    """Write numbers as integers."""
    i = 0
    while i < count:
        out[i] = source[i]
        i += 1


# ---- integers ------------------------------------------------------------------------


def divided(number: int, divisor: int) -> int:
    """Return a quotient, bit by bit from the top."""
    quotient = 0
    rest = 0
    bits = 0
    while bits < 64:
        carry = rest >> 63
        rest = (rest << 1) | (number >> 63)
        number = number << 1
        quotient = quotient << 1
        if (carry | (rest >= divisor)) != 0:
            rest -= divisor
            quotient += 1
        bits += 1
    return quotient


def remainder(number: int, divisor: int) -> int:
    """Return the remainder of a division."""
    return number - divided(number, divisor) * divisor


def signed_remainder(number: int, divisor: int) -> int:
    """Return the remainder of a number with a sign; it is never negative."""
    if (number >> 63) == 0:
        return remainder(number, divisor)
    rest = remainder(0 - number, divisor)
    if rest == 0:
        return 0
    return divisor - rest


def write_decimal(number: int, word: Word) -> int:
    """Write a number with a sign as text; return its length."""
    start = 0
    if (number >> 63) != 0:
        word[0] = 45
        start = 1
        number = 0 - number
    length = start
    rest = number
    while rest > 9:
        rest = divided(rest, 10)
        length += 1
    end = length + 1
    while length + 1 > start:
        rest = divided(number, 10)
        word[length] = 48 + number - rest * 10
        number = rest
        length -= 1
    return end


# ---- hashes --------------------------------------------------------------------------


def hash_words(
    texts: Texts, count: int, out: Numbers, bins: int, has_mask: int, mask: Bytes,
    mask_length: int, salted: int, first: int, second: int,
) -> None:  # fmt: skip
    """Write the bucket of each word."""
    i = 0
    while i < count:
        text: Bytes = texts[i]
        length = length_of(text)
        out[i] = has_mask + bucket(text, length, bins, salted, first, second)
        if has_mask != 0 and length == mask_length and is_same(text, mask, 0, length):
            out[i] = 0
        i += 1


def hash_numbers(
    numbers: Longs, count: int, out: Numbers, word: Word, bins: int, has_mask: int,
    mask: int, salted: int, first: int, second: int,
) -> None:  # fmt: skip
    """Write the bucket of each number."""
    i = 0
    while i < count:
        length = write_decimal(numbers[i], word)
        number = numbers[i]
        out[i] = has_mask + bucket(word, length, bins, salted, first, second)
        if has_mask != 0 and number == mask:
            out[i] = 0
        i += 1


def begin_cross(out: Numbers, count: int) -> None:
    """Write what TensorFlow begins a cross with."""
    i = 0
    while i < count:
        out[i] = 0xDECAFCAFFE
        i += 1


def cross_words(texts: Texts, count: int, out: Numbers) -> None:
    """Take a word into each cross."""
    i = 0
    while i < count:
        text: Bytes = texts[i]
        out[i] = joined_hashes(out[i], fingerprint(text, length_of(text)))
        i += 1


def cross_numbers(numbers: Longs, count: int, out: Numbers) -> None:
    """Take a number into each cross."""
    i = 0
    while i < count:
        out[i] = joined_hashes(out[i], numbers[i])
        i += 1


def end_cross(out: Numbers, count: int, bins: int) -> None:
    """Make buckets of crosses."""
    i = 0
    while i < count:
        out[i] = remainder(out[i], bins)
        i += 1


def bucket(
    word: Bytes, length: int, bins: int, salted: int, first: int, second: int
) -> int:
    """Return the bucket of a word."""
    if salted != 0:
        return remainder(siphash(word, length, first, second), bins)
    return remainder(fingerprint(word, length), bins)


def fetch(word: Bytes, at: int, size: int) -> int:
    """Return some bytes as a number, the lowest byte first."""
    number = 0
    while size > 0:
        size -= 1
        number = (number << 8) | word[at + size]
    return number


def shift_mix(x: int) -> int:
    """Return a step of FarmHash."""
    return x ^ (x >> 47)


def mixed(u: int, v: int, multiplier: int) -> int:
    """Return a hash of two."""
    a = shift_mix((u ^ v) * multiplier)
    return shift_mix((v ^ a) * multiplier) * multiplier


def joined_hashes(first: int, second: int) -> int:
    """Return the fingerprint of two fingerprints."""
    mix = shift_mix(second * 14313749767032793493) * 14313749767032793493
    mix = (first ^ 14313749767032793493 ^ mix) * 14313749767032793493
    return shift_mix(shift_mix(mix) * 14313749767032793493)


K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def fingerprint(word: Bytes, length: int) -> int:
    """Return FarmHash's Fingerprint64."""
    if length > 64:
        return fingerprint_long(word, length)
    if length > 16:
        return fingerprint_to_64(word, length)
    multiplier = K2 + 2 * length
    if length >= 8:
        a = fetch(word, 0, 8) + K2
        b = fetch(word, length - 8, 8)
        c = ((b >> 37) | (b << 27)) * multiplier + a
        return mixed(c, (((a >> 25) | (a << 39)) + b) * multiplier, multiplier)
    if length >= 4:
        a = length + (fetch(word, 0, 4) << 3)
        return mixed(a, fetch(word, length - 4, 4), multiplier)
    if length > 0:
        y = word[0] + (word[length >> 1] << 8)
        z = length + (word[length - 1] << 2)
        return shift_mix((y * K2) ^ (z * K0)) * K2
    return K2


def fingerprint_to_64(word: Bytes, length: int) -> int:
    """Take in 17 to 64 bytes."""
    multiplier = K2 + 2 * length
    a = fetch(word, 0, 8)
    a = a * (K1 + (length > 32) * (K2 - K1))
    b = fetch(word, 8, 8)
    c = fetch(word, length - 8, 8) * multiplier
    ab = a + b
    y = ((ab >> 43) | (ab << 21)) + ((c >> 30) | (c << 34))
    y += fetch(word, length - 16, 8) * K2
    b += K2
    z = mixed(y, a + ((b >> 18) | (b << 46)) + c, multiplier)
    if length > 32:
        e = fetch(word, 16, 8) * multiplier
        f = fetch(word, 24, 8)
        g = (y + fetch(word, length - 32, 8)) * multiplier
        h = (z + fetch(word, length - 24, 8)) * multiplier
        ef = e + f
        f += a
        u = ((ef >> 43) | (ef << 21)) + ((g >> 30) | (g << 34)) + h
        return mixed(u, e + ((f >> 18) | (f << 46)) + g, multiplier)
    return z


def weak_second(word: Bytes, at: int, a: int, b: int) -> int:
    """Return the second of two hashes of 32 bytes."""
    a += fetch(word, at, 8)
    b = b + a + fetch(word, at + 24, 8)
    total = a + fetch(word, at + 8, 8) + fetch(word, at + 16, 8)
    return ((b >> 21) | (b << 43)) + ((total >> 44) | (total << 20)) + a


def weak_first(word: Bytes, at: int, a: int) -> int:
    """Return the first of two hashes of 32 bytes."""
    a += fetch(word, at, 8) + fetch(word, at + 8, 8)
    return a + fetch(word, at + 16, 8) + fetch(word, at + 24, 8)


def fingerprint_long(word: Bytes, length: int) -> int:
    """Take in blocks of 64 bytes; the last one weighs two terms by nine."""
    y = 81 * K1 + 113
    z = shift_mix(y * K2 + 113) * K2
    x = 81 * K2 + fetch(word, 0, 8)
    v0 = 0
    v1 = 0
    w0 = 0
    w1 = 0
    multiplier = K1
    weight = 1
    at = 0
    last = length - 64
    while weight != 0:
        if at + 64 >= length:
            multiplier = K1 + ((z & 255) << 1)
            w0 += (length - 1) & 63
            v0 += w0
            w0 += v0
            weight = 9
            at = last
        x = x + y + v0 + fetch(word, at + 8, 8)
        x = ((x >> 37) | (x << 27)) * multiplier
        y = y + v1 + fetch(word, at + 48, 8)
        y = ((y >> 42) | (y << 22)) * multiplier
        x = x ^ (w1 * weight)
        y += v0 * weight + fetch(word, at + 40, 8)
        z += w0
        z = ((z >> 33) | (z << 31)) * multiplier
        a = v1 * multiplier
        v1 = weak_second(word, at, a, x + w0)
        v0 = weak_first(word, at, a)
        a = z + w1
        w1 = weak_second(word, at + 32, a, y + fetch(word, at + 16, 8))
        w0 = weak_first(word, at + 32, a)
        a = z
        z = x
        x = a
        at += 64
        if weight == 9:
            weight = 0
    u = mixed(v0, w0, multiplier) + shift_mix(y) * K0 + z
    return mixed(u, mixed(v1, w1, multiplier) + x, multiplier)


def siphash(word: Bytes, length: int, first: int, second: int) -> int:
    """Return SipHash-2-4."""
    v0 = first ^ 0x736F6D6570736575
    v1 = second ^ 0x646F72616E646F6D
    v2 = first ^ 0x6C7967656E657261
    v3 = second ^ 0x7465646279746573
    at = 0
    block = 0
    rounds = 0
    more = 1
    while more != 0:
        rounds = 2
        if at + 8 <= length:
            block = fetch(word, at, 8)
        elif at <= length:
            block = fetch(word, at, length - at) | (length << 56)
        else:
            block = 0
            v2 = v2 ^ 255
            rounds = 4
            more = 0
        v3 = v3 ^ block
        while rounds > 0:
            v0 += v1
            v2 += v3
            v1 = ((v1 >> 51) | (v1 << 13)) ^ v0
            v3 = ((v3 >> 48) | (v3 << 16)) ^ v2
            v0 = (v0 >> 32) | (v0 << 32)
            v2 += v1
            v0 += v3
            v1 = ((v1 >> 47) | (v1 << 17)) ^ v2
            v3 = ((v3 >> 43) | (v3 << 21)) ^ v0
            v2 = (v2 >> 32) | (v2 << 32)
            rounds -= 1
        v0 = v0 ^ block
        at += 8
    return v0 ^ v1 ^ v2 ^ v3
