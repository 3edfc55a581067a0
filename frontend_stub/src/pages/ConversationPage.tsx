/** One conversation, live. */
import { useCallback, useEffect, useMemo, useState } from "react";
import { useLocation } from "wouter";
import { useDocumentTitle, useMediaQuery } from "../app/hooks";
import { useServices } from "../app/services";
import type { Services } from "../app/services";
import { ConfirmDialog } from "../components/common/ConfirmDialog";
import { Folds, FoldsContext } from "../components/common/folds";
import { ApprovalBar } from "../components/conversation/ApprovalBar";
import type { Answer } from "../components/conversation/ApprovalBar";
import { Announcer } from "../components/conversation/Announcer";
import { Composer } from "../components/conversation/Composer";
import { GoingBackContext } from "../components/conversation/goingBack";
import { ConversationHeader } from "../components/conversation/ConversationHeader";
import { Notices, Warning } from "../components/conversation/Notices";
import { StatusBar } from "../components/conversation/StatusBar";
import { Pending, Retry, StartProgress, Streaming } from "../components/conversation/Tail";
import { TimelineView } from "../components/conversation/TimelineView";
import { Usage } from "../components/conversation/Usage";
import { NARROW } from "../components/shell/Shell";
import { WorkspacePanel } from "../components/workspace/WorkspacePanel";
import { PortsPanel } from "../components/ports/PortsPanel";
import { draftKey } from "../net/kept-messages";
import { ConversationSession } from "../net/session";
import { openLine } from "../net/socket";
import { tabShelf } from "../net/storage";
import type { RequestedState } from "../protocol/client-actions";
import type { ConversationModel } from "../state/model";
import { reduce } from "../state/conversation";
import { createModel } from "../state/model";
import { isHeldBack, waitingParts } from "../protocol/status";
import { acceptsMessage, phaseOf } from "../state/phase";
import type { Phase } from "../state/phase";
import { ModelStore, useReadable } from "../state/store";
import { awaitedActions } from "../state/timeline";
import { NotFoundPage } from "./NotFoundPage";

function createSession(id: string, services: Services) {
  const store = new ModelStore(createModel(id), reduce);
  const session = new ConversationSession(id, {
    api: services.api,
    keeper: services.keeper,
    store,
    openLine,
    origin: window.location.origin,
    onInfo: services.conversations.refreshSoon,
  });
  return { store, session };
}

export function ConversationPage({ id }: { readonly id: string }) {
  const services = useServices();
  const [parts, setParts] = useState<ReturnType<typeof createSession> | null>(null);

  // A session is a resource: made and ended with the page, so not while drawing.
  useEffect(() => {
    const made = createSession(id, services);
    const created = services.created.get(id);
    if (created !== undefined) made.session.showCreated(created);
    void made.session.open();
    // eslint-disable-next-line react-hooks/set-state-in-effect -- the session exists only from here on
    setParts(made);
    const hurry = () => {
      made.session.hurry();
    };
    window.addEventListener("online", hurry);
    return () => {
      window.removeEventListener("online", hurry);
      made.session.close();
    };
  }, [id, services]);

  return parts === null ? <div className="conversation-page" /> : <OpenConversation id={id} {...parts} />;
}

/** When the start began, as far as it is known; 0 when it is not. */
function startOf(model: ConversationModel): number {
  return model.agentState === "loading" ? model.agentStateSince : model.startingSince;
}

const HINTS: Partial<Readonly<Record<Phase, string>>> = {
  confirming: "Approve or reject first",
  archived: "This conversation is archived",
};

const PLACEHOLDERS: Partial<Readonly<Record<Phase, string>>> = {
  starting: "Write already: it is sent when the sandbox is ready",
  waiting: "Write already: it is read when its turn comes",
  working: "Write to the agent while it works",
  throttled: "Write to the agent while it waits",
  asleep: "Write a message to wake the conversation",
  confirming: "Approve or reject first",
  archived: "This conversation can only be read",
};

function placeholderOf(model: ConversationModel, phase: Phase): string {
  if (model.connection === "reconnecting") return "Write already: it is sent when the server is back";
  if (phase === "waiting" && isHeldBack(model.waiting)) return "Send a message to go on at once";
  return PLACEHOLDERS[phase] ?? "Write a message";
}

const READ_ONLY = "Shared with you for reading";

/** In these a message may be written that is sent later. */
const QUEUES: ReadonlySet<Phase> = new Set(["opening", "starting"]);

const RETRYING: ReadonlySet<Phase> = new Set(["working", "throttled"]);

/** Nothing runs in these: an action that has no answer waits for none. */
const DORMANT: ReadonlySet<Phase> = new Set(["asleep", "failed", "archived"]);

/** In these there is no sandbox that could be asked. */
const SLEEPING: ReadonlySet<Phase> = new Set([...DORMANT, "starting", "waiting", "opening"]);

/** The workspace has no room beside the conversation, so it lies over it. */
const COVERED = "(max-width: 900px)";

interface OpenConversationProps {
  readonly id: string;
  readonly store: ReturnType<typeof createSession>["store"];
  readonly session: ConversationSession;
}

function OpenConversation({ id, store, session }: OpenConversationProps) {
  const services = useServices();
  const [, navigate] = useLocation();
  const model = useReadable(store);
  const phase = phaseOf(model);
  const folds = useMemo(() => new Folds(), []);
  const [sent, setSent] = useState(0);
  const [takenBack, setTakenBack] = useState(0);
  const [workspaceOpen, setWorkspaceOpen] = useState(false);
  const covered = useMediaQuery(COVERED);
  const narrow = useMediaQuery(NARROW);
  const [portsShown, setPortsShown] = useState(false);
  useDocumentTitle(model.info?.title ?? "");
  useForgetCreated(services, id, model);

  const request = useCallback(
    (state: RequestedState) => {
      session.request(state);
    },
    [session],
  );
  const retry = useCallback(() => {
    session.retryNow();
  }, [session]);
  const answer = useCallback(
    (reply: Answer, reason: string) => {
      if (reply === "approve-for-good") session.approveForGood();
      else if (reply === "reject" && reason !== "") session.rejectSaying(reason);
      else session.request(reply === "approve" ? "user_confirmed" : "user_rejected");
    },
    [session],
  );

  const [target, setTarget] = useState<number | null | undefined>(undefined);
  const going = useMemo(
    () => ({
      goBack: setTarget,
      fork: (eventId: number) => {
        void session.fork(eventId).then((made) => {
          if (made === null) return;
          void services.conversations.refresh();
          navigate(`/conversations/${made}`);
        });
      },
    }),
    [session, services, navigate],
  );

  if (phase === "missing") return <NotFoundPage what="conversation" />;

  const send = (text: string) => {
    setSent((count) => count + 1);
    session.send(text);
  };
  const takeBack = (key: string) => {
    const text = session.takeBack(key);
    if (text === null) return;
    const draft = tabShelf.read(draftKey(id)) ?? "";
    tabShelf.write(draftKey(id), draft === "" ? text : `${text}\n\n${draft}`);
    setTakenBack(takenBack + 1);
  };
  const readOnly = model.info?.access === "read";
  const launching = phase === "starting" && model.connection !== "refused";

  return (
    <FoldsContext.Provider value={folds}>
      <GoingBackContext.Provider value={phase === "archived" || (model.info?.access ?? "owner") !== "owner" ? null : going}>
        <div className={`conversation-page ${workspaceOpen ? "with-workspace" : ""}`} data-testid="conversation-page" data-phase={phase}>
          <div className="conversation-body" inert={(workspaceOpen && covered) || (portsShown && narrow)}>
            <ConversationHeader
              model={model}
              phase={phase}
              onRename={(title) => {
                session.showTitle(title);
              }}
              onPorts={() => {
                setPortsShown(!portsShown);
                setWorkspaceOpen(false);
              }}
              onSleep={() => void session.sleep()}
              onDeleted={() => {
                navigate("/");
              }}
              onWorkspace={() => {
                setWorkspaceOpen(!workspaceOpen);
                setPortsShown(false);
              }}
            />
            <TimelineView
              items={model.timeline.items}
              undone={model.timeline.undone}
              output={model.streams.output}
              deadlines={model.streams.deadlines}
              awake={!DORMANT.has(phase)}
              prepends={model.prepends}
              older={model.older}
              onLoadOlder={() => void session.loadOlder()}
              sent={sent}
            >
              <Pending messages={model.pending.filter((message) => message.state === "created")} onTakeBack={takeBack} />
              <Streaming streams={model.streams.responses} />
              {model.retry !== "" && RETRYING.has(phase) && <Retry message={model.retry} />}
              {launching && <StartProgress steps={model.progress} since={startOf(model)} />}
              <Pending messages={model.pending.filter((message) => message.state !== "created")} onTakeBack={takeBack} />
            </TimelineView>
            <div className="dock">
              <Warning kind="outage" text={model.outage} />
              <Warning kind="frozen" text={model.frozen} />
              <Warning kind="obstacle" text={model.obstacle} />
              <Warning kind="warning" text={model.warning} />
              <Warning kind="waiting" text={phase === "waiting" ? waitingParts(model.waiting)[1] : ""} />
              <Notices
                notices={model.notices}
                onDismiss={(key) => {
                  session.dismiss(key);
                }}
              />
              <div className={`dock-box ${phase}`}>
                <StatusBar model={model} phase={phase} onRequest={request} onRetry={retry} />
                {phase === "confirming" && !readOnly && <ApprovalBar actions={awaitedActions(model.timeline)} onAnswer={answer} />}
                <Composer
                  // Drawn anew, it begins with what was taken back.
                  key={takenBack}
                  draftKey={draftKey(id)}
                  label="Message to the agent"
                  placeholder={readOnly ? READ_ONLY : placeholderOf(model, phase)}
                  disabled={readOnly || (!acceptsMessage(phase) && !QUEUES.has(phase))}
                  hint={readOnly ? READ_ONLY : (HINTS[phase] ?? "")}
                  onSend={send}
                >
                  <Usage metrics={model.metrics} />
                </Composer>
              </div>
            </div>
          </div>
          {workspaceOpen && (
            <WorkspacePanel
              id={id}
              awake={!SLEEPING.has(phase)}
              beat={phase}
              onClose={() => {
                setWorkspaceOpen(false);
              }}
            />
          )}
          <Announcer phase={phase} model={model} />
          {target !== undefined && (
            <ConfirmDialog
              title="Go back?"
              text="What came after that place counts no more, and the files in the workspace become as they were then. All of it stays in the history and can be brought back."
              confirmLabel="Go back"
              onCancel={() => {
                setTarget(undefined);
              }}
              onConfirm={() => {
                setTarget(undefined);
                void session.goBack(target);
              }}
            />
          )}
        </div>
        {portsShown && (
          <PortsPanel
            id={id}
            onClose={() => {
              setPortsShown(false);
            }}
          />
        )}
      </GoingBackContext.Provider>
    </FoldsContext.Provider>
  );
}

/** Once the first message is in the log, coming back to the page must not show it as on its way. */
function useForgetCreated(services: Services, id: string, model: ConversationModel): void {
  const arrived = model.timeline.items.length > 0 && !model.pending.some((message) => message.state === "created");
  useEffect(() => {
    if (arrived) services.created.delete(id);
  }, [arrived, services, id]);
}
