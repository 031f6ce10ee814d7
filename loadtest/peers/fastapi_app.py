"""The application of the case of FastAPI; web_servers.py has what it must answer."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel


class Item(BaseModel):
    name: str
    price: float
    tags: list[str] = []


app = FastAPI()


@app.get("/items/{number}", response_model=Item)
async def item(number: int, note: str = "") -> Any:
    return Item(name=f"item {number}", price=1.5, tags=[note])
