"""An assistant that remembers: tell it "My name is Li.", then ask it in another process "What is my name?"."""

import asyncio
import re
import sys
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from recollect import open_store
from recollect.adapters.openai_agents import RecollectSession


@function_tool
def greeting(name: str) -> str:
    """How we greet somebody."""
    return f"Hello, {name}!"


class ScriptedModel(Model):
    """Stands in for a language model: it looks for a name in the conversation, and greets whoever gives one."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002
        last = input[-1]
        name = re.search(r"My name is (\w+)", " ".join(str(item.get("content")) for item in input))
        if last.get("type") == "function_call_output":
            answer: Any = self._said(last["output"])
        elif "My name is" in str(last.get("content")) and name:
            arguments = f'{{"name": "{name[1]}"}}'
            answer = ResponseFunctionToolCall(
                call_id="c1", name="greeting", arguments=arguments, type="function_call"
            )
        else:
            answer = self._said(f"Your name is {name[1]}." if name else "You have not told me.")
        return ModelResponse(output=[answer], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("this model does not stream")

    @staticmethod
    def _said(text: str) -> ResponseOutputMessage:
        content = ResponseOutputText(text=text, type="output_text", annotations=[])
        return ResponseOutputMessage(
            id="m1", content=[content], role="assistant", status="completed", type="message"
        )


async def main(question: str, database: str) -> None:
    set_tracing_disabled(True)  # it would call out
    agent = Agent(name="assistant", model=ScriptedModel(), tools=[greeting])
    async with open_store(f"sqlite:///{database}") as store:
        result = await Runner.run(agent, question, session=RecollectSession("user-42", store))
    print(result.final_output)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit('usage: python assistant.py "My name is Li." [assistant.db]')
    asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "assistant.db"))
