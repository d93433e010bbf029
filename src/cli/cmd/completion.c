/* SPDX-License-Identifier: Apache-2.0 */
/* The scripts that make a shell ask `lapse complete`. They know nothing about commands, so they
 * never grow old. */
#include <stdio.h>
#include <string.h>

#include "cli/line/commands.h"

const char *const COMPLETION_SHELLS[] = { "bash", "zsh", "fish", NULL };

static const char BASH[] =
	"# bash completion of lapse. In ~/.bashrc:  eval \"$(lapse completion bash)\"\n"
	"_lapse() {\n"
	"\tlocal word about\n"
	"\tCOMPREPLY=()\n"
	"\twhile IFS=$'\\t' read -r word about; do\n"
	"\t\tif [ \"$word\" = :files ]; then\n"
	"\t\t\tcompopt -o default 2>/dev/null\n"
	"\t\t\tcontinue\n"
	"\t\tfi\n"
	"\t\tprintf -v word %q \"$word\"\n"
	"\t\tCOMPREPLY+=(\"$word\")\n"
	"\tdone < <(\"${COMP_WORDS[0]}\" complete -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" "
	"2>/dev/null)\n"
	"}\n"
	"complete -F _lapse lapse\n";

static const char ZSH[] =
	"#compdef lapse\n"
	"# zsh completion of lapse. In ~/.zshrc, after compinit:  eval \"$(lapse completion "
	"zsh)\"\n"
	"_lapse() {\n"
	"\tlocal word about\n"
	"\tlocal -a found\n"
	"\twhile IFS=$'\\t' read -r word about; do\n"
	"\t\tif [[ $word == :files ]]; then\n"
	"\t\t\t_files\n"
	"\t\t\tcontinue\n"
	"\t\tfi\n"
	"\t\tfound+=(\"${word//:/\\\\:}:$about\")\n"
	"\tdone < <($words[1] complete -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)\n"
	"\t(( $#found )) && _describe lapse found\n"
	"}\n"
	"compdef _lapse lapse\n";

static const char FISH[] =
	"# fish completion of lapse. In ~/.config/fish/config.fish:  lapse completion fish | "
	"source\n"
	"function __lapse_complete\n"
	"\tset -l words (commandline -opc)\n"
	"\tset -l found ($words[1] complete -- $words[2..-1] (commandline -ct) 2>/dev/null)\n"
	"\tif contains -- :files $found\n"
	"\t\t__fish_complete_path (commandline -ct)\n"
	"\telse\n"
	"\t\tprintf '%s\\n' $found\n"
	"\tend\n"
	"end\n"
	"complete -c lapse -f -a '(__lapse_complete)'\n";

enum outcome cmd_completion(struct cli *cli)
{
	static const char *const scripts[] = { BASH, ZSH, FISH };

	for (size_t i = 0; COMPLETION_SHELLS[i]; i++)
		if (strcmp(args_operand(&cli->args, 0), COMPLETION_SHELLS[i]) == 0) {
			fputs(scripts[i], stdout);
			return OUTCOME_OK;
		}
	return cli_usage(cli, "SHELL must be bash, zsh or fish, not '%s'",
			 args_operand(&cli->args, 0));
}
