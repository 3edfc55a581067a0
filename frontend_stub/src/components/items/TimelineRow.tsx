/** Chooses how an item is drawn. Rows are compared by identity, so an unchanged one costs nothing. */
import { memo } from "react";
import type { TimelineItem } from "../../state/timeline";
import { FoldScope } from "../common/folds";
import { BrowserCard } from "./BrowserCard";
import { CommandCard } from "./CommandCard";
import { DelegateCard } from "./DelegateCard";
import { EditCard, ReadCard } from "./FileCards";
import { AgentMessage, FinishCard, UserMessage } from "./messages";
import { McpCard } from "./McpCard";
import { RewindLine } from "./RewindLine";
import { isFileSearch, SearchCard } from "./SearchCard";
import {
  CondensationCard,
  ErrorCard,
  GenericCard,
  NoticeLine,
  RecallLine,
  SystemLine,
  TasksCard,
  ThinkCard,
} from "./SmallCards";

interface TimelineRowProps {
  readonly item: TimelineItem;
  readonly liveOutput: string;
  /** Until when a client has time to answer the call; empty where none carries it out. */
  readonly deadline: string;
  /** False when nothing runs any more, so that an action without an answer will not get one now. */
  readonly awake: boolean;
}

function draw({ item, liveOutput, deadline, awake }: TimelineRowProps) {
  const { key, kind, action, observation } = item;
  const pair = { foldKey: key, action, observation };
  switch (kind) {
    case "user":
      return action === null ? null : <UserMessage event={action} />;
    case "agent":
      return action === null ? null : <AgentMessage event={action} />;
    case "finish":
      return action === null ? null : <FinishCard event={action} />;
    case "command":
      return <CommandCard {...pair} liveOutput={liveOutput} awake={awake} />;
    case "browser":
      return <BrowserCard {...pair} awake={awake} />;
    case "edit":
      return <EditCard {...pair} awake={awake} />;
    case "read":
      return <ReadCard {...pair} awake={awake} />;
    case "think":
      return <ThinkCard {...pair} />;
    case "error":
      return observation === null ? null : <ErrorCard foldKey={key} observation={observation} />;
    case "condensation":
      return <CondensationCard {...pair} />;
    case "tasks":
      return <TasksCard {...pair} />;
    case "mcp":
      if (isFileSearch(action)) return <SearchCard {...pair} awake={awake} />;
      return <McpCard {...pair} awake={awake} deadline={deadline} />;
    case "delegate":
      return <DelegateCard {...pair} liveOutput={liveOutput} awake={awake} />;
    case "recall":
      return observation === null ? null : <RecallLine foldKey={key} observation={observation} />;
    case "system":
      return action === null ? null : <SystemLine foldKey={key} action={action} />;
    case "notice":
      return <NoticeLine {...pair} />;
    case "rewind":
      return action === null ? null : <RewindLine action={action} observation={observation} place={item.place ?? ""} />;
    case "generic":
      return <GenericCard {...pair} />;
  }
}

export const TimelineRow = memo(function TimelineRow(props: TimelineRowProps) {
  return (
    <FoldScope.Provider value={props.item.key}>
      <div className={props.item.undone ? "row undone" : "row"}>{draw(props)}</div>
    </FoldScope.Provider>
  );
});
