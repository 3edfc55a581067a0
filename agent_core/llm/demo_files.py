"""The little project of the demo: a module with a fault, its tests, the mended part, and a feature for later."""

from __future__ import annotations

MODULE = '''"""Roman numerals."""

LETTERS = [
    (1000, "M"),
    (500, "D"),
    (100, "C"),
    (50, "L"),
    (10, "X"),
    (5, "V"),
    (1, "I"),
]


def to_roman(number):
    """Write a whole number from 1 to 3999 as a Roman numeral."""
    numeral = ""
    for value, letters in LETTERS:
        while number >= value:
            numeral += letters
            number -= value
    return numeral
'''

FAULTY_LETTERS = MODULE[MODULE.index("LETTERS = [") : MODULE.index("]\n") + 1]

MENDED_LETTERS = """LETTERS = [
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
]"""

MENDED_MODULE = MODULE.replace(FAULTY_LETTERS, MENDED_LETTERS)

TESTS = """import unittest

from roman import to_roman


class ToRoman(unittest.TestCase):
    def test_single_letters(self):
        self.assertEqual(to_roman(1), "I")
        self.assertEqual(to_roman(500), "D")

    def test_letters_add_up(self):
        self.assertEqual(to_roman(8), "VIII")
        self.assertEqual(to_roman(1666), "MDCLXVI")

    def test_a_smaller_letter_in_front_is_subtracted(self):
        self.assertEqual(to_roman(4), "IV")
        self.assertEqual(to_roman(1994), "MCMXCIV")


if __name__ == "__main__":
    unittest.main()
"""

FEATURE_ANCHOR = "    return numeral\n"

FEATURE = '''    return numeral


def from_roman(numeral):
    """Read a Roman numeral back as a number."""
    number = 0
    for value, letters in LETTERS:
        while numeral.startswith(letters):
            number += value
            numeral = numeral[len(letters) :]
    return number
'''

FEATURE_TESTS = """import unittest

from roman import from_roman, to_roman


class FromRoman(unittest.TestCase):
    def test_every_number_survives_the_way_there_and_back(self):
        for number in range(1, 4000):
            self.assertEqual(from_roman(to_roman(number)), number)


if __name__ == "__main__":
    unittest.main()
"""
