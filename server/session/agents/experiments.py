"""Experiments: another configuration for some of the conversations."""

from __future__ import annotations

import logging

from agent_core.session.settings import SessionSettings

logger = logging.getLogger(__name__)


class ExperimentManager:
    """May give conversations another configuration than their users' settings; this one changes nothing.

    A subclass is put to use by the setting `experiment_manager_class`; it is made once, without arguments.
    """

    def variant(self, conversation_id: str, user_id: str, settings: SessionSettings) -> SessionSettings:
        """The settings that the conversation is run with. Must not wait.

        Asked at each load, also after a restart, so the choice has to follow from the two ids.
        """
        return settings

    def chosen(self, conversation_id: str, user_id: str, settings: SessionSettings) -> SessionSettings:
        """`variant`, or the settings as they were where it fails."""
        try:
            return self.variant(conversation_id, user_id, settings)
        except Exception:
            logger.exception("conversation %s: no variant could be chosen, so it runs as it is set", conversation_id)
            return settings
