"""A help desk with a memory: `python helpdesk.py redis://localhost USER SESSION "The printer is on fire."`."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.genai.types import Content, Part

from recollect import open_store
from recollect.adapters.adk import RecollectSessionService

APP = "helpdesk"


class ScriptedModel(BaseLlm):
    """Stands in for a language model: it repeats the first thing that the person said in this session."""

    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        said = [part.text for content in llm_request.contents for part in content.parts or [] if part.text]
        instruction = str(llm_request.config.system_instruction or "").splitlines()[0]
        answer = f"{instruction} You first said here: {said[0]}"
        yield LlmResponse(content=Content(role="model", parts=[Part(text=answer)]))


def count_calls(callback_context: CallbackContext) -> None:
    callback_context.state["user:calls"] = callback_context.state.get("user:calls", 0) + 1


async def main(url: str, user: str, name: str, text: str) -> None:
    async with open_store(url) as store:
        service = RecollectSessionService(store)
        if await service.get_session(app_name=APP, user_id=user, session_id=name) is None:
            await service.create_session(app_name=APP, user_id=user, session_id=name)
        agent = LlmAgent(
            name="desk",
            model=ScriptedModel(),
            instruction="This is call {user:calls}.",
            before_agent_callback=count_calls,
        )
        runner = Runner(app_name=APP, agent=agent, session_service=service)
        message = Content(role="user", parts=[Part(text=text)])
        async for event in runner.run_async(user_id=user, session_id=name, new_message=message):
            if event.is_final_response() and event.content and event.content.parts:
                print(event.content.parts[0].text)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit('usage: python helpdesk.py redis://localhost li monday "The printer is on fire."')
    logging.getLogger("google_adk").setLevel(logging.ERROR)
    asyncio.run(main(*sys.argv[1:]))
