"""Readings over HTTP: `GET /log?city=New York&temperature=72.5`."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import AfterValidator, WithJsonSchema

from headrace import Received, receive

COLDEST, HOTTEST = -150, 150  # degrees Fahrenheit; on Earth it has been -128.6 and 134.1
LONGEST_CITY = 255
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
NAME = r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$"
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_city(city: str) -> str:
    """Return the city's name in Unicode's composed form (NFC), with single spaces between its words and none around it."""
    if CONTROL.search(city):
        raise ValueError("it has a control character in it: write letters")
    city = " ".join(unicodedata.normalize("NFC", city).split())
    if not city:
        raise ValueError("it is empty: write the name of a city")
    if len(city) > LONGEST_CITY:
        raise ValueError(f"it has {len(city)} characters: write at most {LONGEST_CITY}")
    return city


def check_temperature(temperature: str) -> str:
    shown = temperature if len(temperature) <= 40 else f"{temperature[:40]}…"
    if not NUMBER.fullmatch(temperature):
        what = "not a finite number" if NOT_FINITE.fullmatch(temperature) else "not a number"
        raise ValueError(f'"{shown}" is {what}: write degrees Fahrenheit, such as 72.5')
    if not COLDEST <= float(temperature) <= HOTTEST:
        raise ValueError(f"{shown} degrees Fahrenheit can't be: write a number from {COLDEST} to {HOTTEST}")
    if len(temperature) > 40:
        raise ValueError("it has too many digits: write at most 40 characters")
    return temperature


City = Annotated[
    str,
    AfterValidator(check_city),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": LONGEST_CITY, "pattern": NAME}),
    Query(description="the name of a city", examples=["New York"]),
]
Temperature = Annotated[
    str,
    AfterValidator(check_temperature),
    WithJsonSchema({"type": "number", "minimum": COLDEST, "maximum": HOTTEST}),
    Query(description="degrees Fahrenheit", examples=["72.5"]),
]


@receive("/log", stream="readings")
def log(city: City, temperature: Temperature, now: datetime) -> Received:
    """Take a reading; success means that Kafka has it."""
    event_time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    data = {"city": city, "temperature": temperature, "ts": f"{event_time[:10]}-{event_time[11:13]}"}
    answer = {"status": "success", "message": "Weather data logged", "data": data}
    return Received(event={**data, "event_time": event_time}, answer=answer)
