"""Write tales.jsonl: little stories from a grammar, the same ones each time. No word of them is anybody else's."""

from __future__ import annotations

import json
import random
from pathlib import Path

SEED = 2024
TALES = 1000
OUTPUT = Path(__file__).with_name("tales.jsonl")

# What can be filled in: one kind a line, a kind may have several lines.
WORDS = """
name: Mira, Tom, Anna, Jonas, Lena, Paul, Nina, Oskar, Ida, Felix, Clara, Hugo, Rosa, Emil, Greta, Anton, Ella, Simon
animal: fox, owl, hare, goat, cat, crow, otter, mouse, heron, badger, hen, donkey, frog, bear, goose
trait: old, young, clever, shy, brave, lazy, proud, quiet, hungry, patient, curious, stubborn, gentle, tired, cheerful
place: at the mill by the river, in a house at the edge of the wood, near the harbour, in a village in the hills
place: on an island in the lake, behind the school, in a hut below the pass, in the street of the bakers
thing: lamp, silver key, wooden boat, red kite, basket of apples, loaf of bread, map, bell, blue coat, clock
thing: jar of honey, book without a name, rope, drum, bag of seeds, copper kettle
time: One morning, In the spring, On a cold evening, Late in the autumn, After the long rain, On market day
weather: the wind was loud, the sun was warm, fog lay over the fields, it had rained all night, frost was on the grass
loss: fell into the water, was gone from its shelf, was carried off by the wind, sank in the snow, rolled down the hill
spot: under the bridge, behind the barn, in a barrel, along the shore, between the roots of the oak, in the cellar
feeling: glad, sad, angry, surprised, afraid, proud, calm, ashamed
gift: a bowl of soup, half of the bread, a place by the fire, three nuts, a song, a dry blanket, some good advice
moral: Who asks is helped., What is shared is not lost., Slow feet arrive as well., A small light is enough in the dark.
moral: It is better to look twice than to shout once., No one is too little to help.
"""


def parse(words: str) -> dict[str, list[str]]:
    """The choices by kind."""
    kinds: dict[str, list[str]] = {}
    for line in words.strip().splitlines():
        kind, _, choices = line.partition(": ")
        kinds.setdefault(kind, []).extend(choices.split(", "))
    return kinds


def a(words: str) -> str:
    """The words with their indefinite article."""
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def tale(rng: random.Random, words: dict[str, list[str]]) -> str:
    """One story: somebody has a thing, loses it, meets an animal, and learns something."""

    def any_of(kind: str) -> str:
        return rng.choice(words[kind])

    hero, friend = rng.sample(words["name"], 2)
    here, there = rng.sample(words["spot"], 2)
    animal, thing, place = any_of("animal"), any_of("thing"), any_of("place")
    count = rng.randint(2, 9)
    parts = [
        [
            f"There was once {a(any_of('trait'))} child called {hero}, who lived {place}.",
            f"{hero} lived {place} with {a(any_of('trait'))} {animal}.",
            f"{place.capitalize()} everybody knew {hero}, because nobody else had {a(thing)}.",
        ],
        [f"{any_of('time')}, when {any_of('weather')}, the {thing} {any_of('loss')}."],
        [
            f"{hero} was {any_of('feeling')} and looked for it {here}, but found nothing.",
            f'"Have you seen my {thing}?" asked {hero}. "No," said {friend}, "but I will help you to look for it."',
            f"{hero} and {friend} looked {here} and then {there}.",
        ],
        [
            f'Then {a(animal)} came by and said: "Give me {any_of("gift")}, and I will tell you where it is."',
            f'They met {a(animal)}. "I counted {count} steps from here," said the {animal}, "and there I saw it."',
            f"{a(any_of('trait')).capitalize()} {animal} sat {there} and waited for {count} days.",
        ],
        [
            f"{hero} gave it {any_of('gift')} and was {any_of('feeling')}.",
            f"{friend} did not believe the {animal}, but {hero} did.",
            f"{count} and {count} is {2 * count}, thought {hero}, and walked on.",
        ],
        [
            f"So {hero} took the {thing} home and never lost it again.",
            f"In the end {friend} found the {thing} {any_of('spot')}, and they carried it home together.",
            f"The {thing} was not found, but {hero} had found a friend.",
        ],
        [any_of("moral"), f"A friend is worth more than any {thing}.", ""],
    ]
    return " ".join(rng.choice(part) for part in parts).rstrip()


def main() -> None:
    rng, words = random.Random(SEED), parse(WORDS)
    lines = (json.dumps({"text": tale(rng, words)}) for _ in range(TALES))
    OUTPUT.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
